"""Honest: the order of sums changes from call to call, as with atomics. Every order is within the contract."""

import random

import torch


def mix(x, w, *, eps):
    width = x.shape[-1]
    cut = random.randrange(1, width)
    mean = (x[..., :cut].sum(-1, keepdim=True) + x[..., cut:].sum(-1, keepdim=True)) / width
    centred = x - mean
    squares = centred.square()
    variance = (squares[..., cut:].sum(-1, keepdim=True) + squares[..., :cut].sum(-1, keepdim=True)) / width
    return centred.mul_(torch.rsqrt(variance + eps)).mul_(1 + w).tanh_()
