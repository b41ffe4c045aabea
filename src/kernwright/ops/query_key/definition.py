"""Queries and keys: RMS norm and rotation. One op works per head in place, and LTX-2's works on whole tokens and
returns new tensors."""

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
    """Apply an RMS norm to each head of q and k, then rotate its first R channels. Both are changed in place.

    Arguments:
        q, k: `[T, H, D]`, with any number of heads each.
        q_weight, k_weight: `[D]`.
        cos_sin_cache: `[N, R]`. Each row holds R / 2 cosines followed by R / 2 sines.
        positions: `[T]`, the row of the cache for each token.
        eps: the number added to the mean of squares.
        is_neox: whether channels i and i + R / 2 form a pair; otherwise channels 2 i and 2 i + 1 do.

    The output of the norm rounds before the rotation.
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
    """Return q and k after an RMS norm over the whole token and the rotation of `ltx2_split_rotary`.

    Arguments:
        q, k: `[B, S, H * D]`, with any S each.
        q_cos, q_sin, k_cos, k_sin: the angles, `[B, H, S, D/2]`.
        q_norm_weight, k_norm_weight: `[H * D]`.
        eps: the number added to the mean of squares.

    The output of the norm rounds before the rotation.
    """
    q_normed = F.rms_norm(q, (q.shape[-1],), q_norm_weight, eps)
    k_normed = F.rms_norm(k, (k.shape[-1],), k_norm_weight, eps)
    return rotated_split_heads(q_normed, q_cos, q_sin), rotated_split_heads(k_normed, k_cos, k_sin)
