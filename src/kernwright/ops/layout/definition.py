"""Data movement: every bit arrives as it left, NaN and Inf included."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernwright.core.op import define


@define(outputs=["out"], activations=["a", "b"], contract="exact")
def concat_sequence(a: Tensor, b: Tensor) -> Tensor:
    """a, then b, along the sequence; either may be a view of some heads"""
    return torch.cat([a, b], dim=1)


@define(outputs=["out"], activations=["a"], contract="exact")
def copy_contiguous(a: Tensor) -> Tensor:
    """A dense copy of a view"""
    return a.clone(memory_format=torch.contiguous_format)


@define(outputs=["out"], activations=["x", "cache"], contract="exact")
def causal_cat_pad(x: Tensor, cache: Tensor | None = None, *, pad_w: int = 1, pad_h: int = 1, pad_t: int = 2) -> Tensor:
    """Cached frames, then x, with zeros around them; the cache takes the place of padding before the first frame"""
    joined = x if cache is None else torch.cat([cache, x], dim=2)
    before = pad_t - (joined.shape[2] - x.shape[2])
    if before < 0:
        raise ValueError(f"{joined.shape[2] - x.shape[2]} cached frames do not fit into a padding of {pad_t}")
    return F.pad(joined, (pad_w, pad_w, pad_h, pad_h, before, 0))
