"""Honest: allocates far more than its output, frees it again, and hands out a slice of a larger allocation."""

import torch


def mix(x, w, *, eps):
    room = torch.empty(4, *x.shape, dtype=x.dtype, device=x.device)
    torch.sub(x, x.mean(-1, keepdim=True), out=room[0])
    torch.mul(room[0], room[0], out=room[1])
    inverse = torch.rsqrt(room[1].mean(-1, keepdim=True) + eps)
    torch.mul(room[0], inverse, out=room[2])
    room[2].mul_(1 + w)
    return torch.tanh(room[2], out=room[3])
