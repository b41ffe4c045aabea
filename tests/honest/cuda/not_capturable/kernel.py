"""Honest: reads its weights on the host in every call, so it cannot be captured in a graph."""

import torch


def mix(x, w, *, eps):
    scale = 1 + w if bool(w.isfinite().all()) else torch.ones_like(w) + w
    centred = x - x.mean(-1, keepdim=True)
    inverse = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    return torch.tanh(centred * inverse * scale)
