"""Honest: compiles its elementwise part with torch.compile, once for all sizes."""

import torch


@torch.compile(dynamic=True)
def squash(centred, variance, w, eps):
    return torch.tanh(centred * torch.rsqrt(variance + eps) * (1 + w))


def mix(x, w, *, eps):
    centred = x - x.mean(-1, keepdim=True)
    return squash(centred, centred.pow(2).mean(-1, keepdim=True), w, eps)
