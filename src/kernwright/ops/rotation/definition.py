"""Rotary position embeddings: adjacent pairs, and the split halves of LTX-2."""

from __future__ import annotations

from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rotations import rotated_pairs, rotated_split_heads


@define(outputs=["y"], activations=["x"])
def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Adjacent pairs of x `[B, S, H, D]` turned by the token's angles `[S, D/2]`; at least float32, one rounding"""
    return rotated_pairs(x, cos[:, None, :], sin[:, None, :])


@define(outputs=["y"], activations=["x"], contract="exact")
def ltx2_split_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The halves of each head of x `[B, S, H * D]` turned by `[B, H, S, D/2]`; the product with cos rounds first.

    This is the rounding of LTX-2's own chain, a product and then addcmul, not that of one fused expression.
    """
    return rotated_split_heads(x, cos, sin)
