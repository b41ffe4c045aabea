"""Honest: computes row sums with atomic additions, so their order is not fixed."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_parts(x, mean, into, width, POWER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0)
    if POWER == 2:
        centred = tl.where(inside, value - tl.load(mean + row) / width, 0.0)
        value = centred * centred
    tl.atomic_add(into + row, tl.sum(value, 0))


def mix(x, w, *, eps):
    rows, width = x.shape
    sums = torch.zeros(2, rows, device=x.device)
    grid = (rows, triton.cdiv(width, 256))
    add_parts[grid](x, sums, sums[0], width, POWER=1, BLOCK=256)
    add_parts[grid](x, sums[0], sums[1], width, POWER=2, BLOCK=256)
    mean, variance = (sums / width)[:, :, None]
    return (x - mean).mul_(torch.rsqrt(variance + eps)).mul_(1 + w).tanh_()
