"""Norm followed by scale and shift, plain and behind a gated residual.

Rounding, as the models run it in eager mode: the pre-norm value in x's dtype; statistics in float32; the norm's output
in x's dtype; scale and shift applied in their own dtype (float32 modulation promotes); the result in x's dtype.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernwright.ops.definition import define
from kernwright.ops.rounding import over_tokens, wide


def _norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, norm_type: str, eps: float) -> Tensor:
    width = (x.shape[-1],)
    if norm_type == "rms":
        inverse = torch.rsqrt(wide(x).pow(2).mean(-1, keepdim=True) + eps)
        normed = wide(x) * inverse
        return (normed if weight is None else normed * weight).to(x.dtype)
    if norm_type != "layer":
        raise ValueError(f"norm_type is 'layer' or 'rms', not {norm_type!r}")
    if weight is None:
        return F.layer_norm(x, width, eps=eps)
    # A float32 affine with half-width tokens: the layer runs wide and rounds once.
    return F.layer_norm(
        wide(x), width, weight.to(wide(x).dtype), None if bias is None else bias.to(wide(x).dtype), eps
    ).to(x.dtype)


def _modulate(normed: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    scale, shift = over_tokens(scale, normed), over_tokens(shift, normed)
    return (normed * (1 + scale) + shift).to(normed.dtype)


@define(outputs=["y"], activations=["x"])
def norm_scale_shift(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm_type: str = "layer",
    eps: float = 1e-6,
) -> Tensor:
    """norm(x) * (1 + scale) + shift"""
    return _modulate(_norm(x, weight, bias, norm_type, eps), scale, shift)


@define(outputs=["y", "res_out"], activations=["x", "residual"])
def residual_norm_scale_shift(
    x: Tensor,
    residual: Tensor,
    scale: Tensor,
    shift: Tensor,
    gate: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm_type: str = "layer",
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """r = residual + gate * x (no gate: residual + x); returns norm(r) * (1 + scale) + shift, and r"""
    gated = x if gate is None else over_tokens(gate, x) * x
    res_out = (residual + gated).to(x.dtype)
    return _modulate(_norm(res_out, weight, bias, norm_type, eps), scale, shift), res_out
