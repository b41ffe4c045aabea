"""Honest: right, but three times slower than necessary."""

import torch


def mix(x, w, *, eps):
    for _ in range(3):
        centred = x - x.mean(-1, keepdim=True)
        inverse = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
        y = torch.tanh(centred * inverse * (1 + w))
    return y
