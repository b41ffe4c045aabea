"""Data movement: every bit is copied unchanged, including NaN and Inf."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernwright.core.op import define


@define(outputs=["out"], activations=["a", "b"], contract="exact")
def concat_sequence(a: Tensor, b: Tensor) -> Tensor:
    """Return a followed by b along axis 1. Either may be a view, for example of some heads.

    Arguments:
        a, b: tensors that differ in no axis but axis 1.
    """
    return torch.cat([a, b], dim=1)


@define(outputs=["out"], activations=["a"], contract="exact")
def copy_contiguous(a: Tensor) -> Tensor:
    """Return a contiguous copy of a tensor."""
    return a.clone(memory_format=torch.contiguous_format)


@define(outputs=["out"], activations=["x", "cache"], contract="exact")
def causal_cat_pad(x: Tensor, cache: Tensor | None = None, *, pad_w: int = 1, pad_h: int = 1, pad_t: int = 2) -> Tensor:
    """Return the cached frames followed by those of x, padded with zeros.

    Arguments:
        x: `[B, C, T, H, W]`.
        cache: earlier frames, `[B, C, T', H, W]`, or omitted. They replace that many frames of padding.
        pad_w, pad_h: columns and rows of zeros on each side.
        pad_t: frames before x: the cached ones, preceded by zeros.
    """
    joined = x if cache is None else torch.cat([cache, x], dim=2)
    before = pad_t - (joined.shape[2] - x.shape[2])
    if before < 0:
        raise ValueError(f"{joined.shape[2] - x.shape[2]} cached frames do not fit into a padding of {pad_t}")
    return F.pad(joined, (pad_w, pad_w, pad_h, pad_h, before, 0))
