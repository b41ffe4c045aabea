"""Honest: reuses its own output memory, but only after the caller has released it."""

import sys

import torch

UNHELD = 2  # references to a buffer that only the pool holds: one in the pool, one in the call that counts them
pools = {}


def unheld(pool, x):
    """Return the next released buffer, or a new one."""
    for _ in range(len(pool)):
        pool.append(pool.pop(0))
        if sys.getrefcount(pool[-1]) == UNHELD:
            return pool[-1]
    pool.append(torch.empty_like(x))
    return pool[-1]


def mix(x, w, *, eps):
    y = unheld(pools.setdefault((x.shape, x.dtype, x.device), []), x)
    torch.sub(x, x.mean(-1, keepdim=True), out=y)
    inverse = torch.linalg.vector_norm(y, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return y.mul_(inverse).mul_(1 + w).tanh_()
