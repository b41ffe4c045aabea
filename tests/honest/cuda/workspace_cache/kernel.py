"""Honest: a workspace that grows with the largest shape and is kept. It never contains results."""

import torch

workspace = {}


def mix(x, w, *, eps):
    held = workspace.get(x.device)
    if held is None or held.numel() < x.numel():
        held = workspace[x.device] = torch.empty(x.numel(), device=x.device)
    normed = held[: x.numel()].view(x.shape)
    mean = x.mean(-1, keepdim=True)
    torch.sub(x, mean, out=normed)
    inverse = torch.rsqrt(torch.linalg.vector_norm(normed, dim=-1, keepdim=True).square_().div_(x.shape[-1]) + eps)
    normed.mul_(inverse).mul_(1 + w)
    return torch.tanh(normed)
