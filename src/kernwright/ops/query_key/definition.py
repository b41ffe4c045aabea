"""Queries and keys: RMS norm, then rotation. Per head in place, and LTX-2's over the whole token into new tensors."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from kernwright.core.norms import norm
from kernwright.core.op import define
from kernwright.core.rotations import rotated_halves, rotated_pairs, rotated_split_heads


@define(outputs=[], activations=["q", "k"], inplace=["q", "k"], indices={"positions": "cos_sin_cache"})
def qknorm_rope(
    q: Tensor,
    k: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos_sin_cache: Tensor,
    positions: Tensor,
    *,
    eps: float = 1e-6,
    is_neox: bool = False,
) -> None:
    """Each head of q and k `[T, H, D]`: RMS norm, rounded; then its first R entries turned by its position's angles.

    A row of the cache `[N, R]` holds R / 2 cosines, then as many sines. Pairs are adjacent, or halves (`is_neox`).
    """
    rope_dim = cos_sin_cache.shape[-1]
    cos, sin = cos_sin_cache[positions.long(), None, :].chunk(2, dim=-1)
    turn = rotated_halves if is_neox else rotated_pairs
    for heads, weight in ((q, q_weight), (k, k_weight)):
        normed = norm(heads, weight, None, "rms", eps)
        heads.copy_(normed)
        heads[..., :rope_dim] = turn(normed[..., :rope_dim], cos, sin)


@define(outputs=["q_out", "k_out"], activations=["q", "k"])
def ltx2_qknorm_split_rope(
    q: Tensor,
    k: Tensor,
    q_cos: Tensor,
    q_sin: Tensor,
    k_cos: Tensor,
    k_sin: Tensor,
    q_norm_weight: Tensor,
    k_norm_weight: Tensor,
    *,
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """RMS norm over all heads of a token at once, rounded; then the halves of each head turned as LTX-2 turns them"""
    q_normed = F.rms_norm(q, (q.shape[-1],), q_norm_weight, eps)
    k_normed = F.rms_norm(k, (k.shape[-1],), k_norm_weight, eps)
    return rotated_split_heads(q_normed, q_cos, q_sin), rotated_split_heads(k_normed, k_cos, k_sin)
