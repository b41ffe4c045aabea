"""Honest: one row per program in Triton."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel(x, w, y, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0)
    mean = tl.sum(value, 0) / width
    centred = tl.where(inside, value - mean, 0.0)
    # The exactly rounded forms, because the fast ones add an error of one or two ulp each.
    inverse = tl.div_rn(1.0, tl.sqrt_rn(tl.sum(centred * centred, 0) / width + eps))
    z = centred * inverse * (1 + tl.load(w + column, mask=inside, other=0.0))
    tl.store(y + row * width + column, libdevice.tanh(z), mask=inside)


def mix(x, w, *, eps):
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, w, y, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
