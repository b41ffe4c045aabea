"""Honest: one row per program in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, w, y, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    # In float64, because the result's error is compared with that of the float32 chain.
    value = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float64)
    mean = tl.sum(value, 0) / width
    centred = tl.where(inside, value - mean, 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    z = centred * inverse * (1 + tl.load(w + column, mask=inside, other=0.0))
    e = tl.exp(2 * tl.where(z > 20, 20.0, z))
    tl.store(y + row * width + column, ((e - 1) / (e + 1)).to(tl.float32), mask=inside)


def mix(x, w, *, eps):
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, w, y, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
