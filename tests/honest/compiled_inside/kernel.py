"""Honest: compiles itself with torch.compile, once for all sizes."""

import torch


@torch.compile(dynamic=True)
def compiled(x, w, eps):
    centred = x - x.mean(-1, keepdim=True)
    inverse = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    return torch.tanh(centred * inverse * (1 + w))


def mix(x, w, *, eps):
    return compiled(x, w, eps)
