"""Rotary embeddings that several definitions share, with the roundings of the eager modules."""

from __future__ import annotations

import torch
from torch import Tensor

from kernwright.core.rounding import wide


def rotated_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x[2i], x[2i+1]) by the angle i, in at least float32, and round once to x's dtype."""
    even, odd = wide(x[..., 0::2]), wide(x[..., 1::2])
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2).to(x.dtype)


def rotated_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + D/2]) by the angle i, in at least float32, and round once to x's dtype."""
    low, high = wide(x).chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, low * sin + high * cos], dim=-1).to(x.dtype)


def rotated_split_heads(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the halves of each head of `[B, S, H * D]` tokens by `[B, H, S, D/2]` angles.

    The product with cos rounds.
    """
    batch, heads, tokens, half = cos.shape
    low, high = x.reshape(batch, tokens, heads, 2, half).transpose(1, 2).unbind(-2)
    turned_low = torch.addcmul(low * cos, high, sin, value=-1)
    turned_high = torch.addcmul(high * cos, low, sin)
    return torch.stack([turned_low, turned_high], dim=-2).transpose(1, 2).reshape(x.shape)
