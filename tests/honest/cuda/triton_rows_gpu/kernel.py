"""Honest: one row a program in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, w, y, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0)
    mean = tl.sum(value, 0) / width
    centred = tl.where(inside, value - mean, 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    z = centred * inverse * (1 + tl.load(w + column, mask=inside, other=0.0))
    # Near zero a difference of exponentials would lose the digits that the series keeps.
    s = z * z
    near = z * (1 + s * (-1 / 3 + s * (2 / 15 + s * (-17 / 315 + s * (62 / 2835)))))
    far = 1 - 2 / (tl.exp(2 * tl.where(z > 20, 20.0, z)) + 1)
    tl.store(y + row * width + column, tl.where(s < 0.09, near, far), mask=inside)


def mix(x, w, *, eps):
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, w, y, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
