"""Rounding: how a reference chain says where it rounds.

A definition runs in the storage dtype, as the eager chain, and again in float64, as the oracle. So it never names a
precision: `wide(x)` means "at least float32", and `.to(x.dtype)` means "round here".
"""

from __future__ import annotations

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """Return x in at least float32, as an eager chain upcasts it. float64 stays float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def over_tokens(modulation: Tensor, x: Tensor) -> Tensor:
    """View a modulation tensor so that it broadcasts over the `[B, S, D]` tokens of x.

    `[B, D]` is one row per batch entry; `[B, F, 1, D]` one row per frame, each frame covering S / F tokens.
    All other layouts (`[1]`, `[D]`, `[B, 1, D]`, `[B, S, D]`) broadcast unchanged.
    """
    if modulation.ndim == 2 and x.ndim == 3:
        return modulation[:, None, :]
    if modulation.ndim == 4 and x.ndim == 3:
        batch, frames, _, width = modulation.shape
        tokens = x.shape[1]
        if tokens % frames:
            raise ValueError(f"{tokens} tokens do not divide into {frames} frames")
        return modulation.expand(batch, frames, tokens // frames, width).reshape(batch, tokens, width)
    return modulation
