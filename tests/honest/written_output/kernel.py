"""Honest: writes into the output that it is given, and keeps nothing."""

import torch


def mix(x, w, *, eps, out):
    torch.tanh(torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps).mul_(1 + w), out=out)
