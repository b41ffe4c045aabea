"""Honest: the same result with fewer torch calls, in place."""

import torch


def mix(x, w, *, eps):
    y = x - x.mean(-1, keepdim=True)
    inverse = torch.linalg.vector_norm(y, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return y.mul_(inverse).mul_(1 + w).tanh_()
