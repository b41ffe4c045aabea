"""Rotary position embeddings: adjacent pairs, and the split halves of LTX-2."""

from __future__ import annotations

from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rotations import rotated_pairs, rotated_split_heads


@define(outputs=["y"], activations=["x"])
def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x with each pair of adjacent channels rotated, computed in at least float32 and rounded once.

    Arguments:
        x: `[B, S, H, D]`.
        cos, sin: the angles of each token, `[S, D/2]`.
    """
    return rotated_pairs(x, cos[:, None, :], sin[:, None, :])


@define(outputs=["y"], activations=["x"], contract="exact")
def ltx2_split_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x with channels i and i + D/2 of each head rotated as a pair.

    Arguments:
        x: `[B, S, H * D]`.
        cos, sin: the angles, `[B, H, S, D/2]`.

    The product with cos rounds first, as in LTX-2's own chain of a product and addcmul.
    """
    return rotated_split_heads(x, cos, sin)
