"""Norms that several definitions share, with the roundings of the eager modules."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernwright.core.rounding import wide


def norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, norm_type: str, eps: float) -> Tensor:
    """Apply LayerNorm or RMSNorm over the last axis: statistics in at least float32, one rounding to x's dtype."""
    width = (x.shape[-1],)
    if norm_type == "rms":
        if bias is not None:
            raise ValueError("an RMS norm has no bias")
        inverse = torch.rsqrt(wide(x).pow(2).mean(-1, keepdim=True) + eps)
        normed = wide(x) * inverse
        return (normed if weight is None else normed * weight).to(x.dtype)
    if norm_type != "layer":
        raise ValueError(f"norm_type is 'layer' or 'rms', not {norm_type!r}")
    if weight is None:
        return F.layer_norm(x, width, eps=eps)
    # With a float32 weight and half-precision tokens the layer runs in float32 and rounds once.
    return F.layer_norm(
        wide(x), width, weight.to(wide(x).dtype), None if bias is None else bias.to(wide(x).dtype), eps
    ).to(x.dtype)
