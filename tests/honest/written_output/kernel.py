"""Honest: writes into the given output and keeps nothing."""

import torch


def mix(x, w, *, eps, out):
    torch.sub(x, x.mean(-1, keepdim=True), out=out)
    out.mul_(torch.rsqrt(out.square().mean(-1, keepdim=True) + eps)).mul_(1 + w).tanh_()
