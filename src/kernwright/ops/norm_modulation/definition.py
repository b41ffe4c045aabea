"""Norm followed by scale and shift: plain, behind a gated residual, and with a choice of two modulations per token.

Rounding, as the models run it in eager mode: the pre-norm value in x's dtype; statistics in float32; the norm's output
in x's dtype; scale and shift applied in their own dtype (float32 modulation promotes); the result in x's dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernwright.core.norms import norm
from kernwright.core.op import define
from kernwright.core.rounding import over_tokens


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
    return _modulate(norm(x, weight, bias, norm_type, eps), scale, shift)


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
    return _modulate(norm(res_out, weight, bias, norm_type, eps), scale, shift), res_out


def _picked(index: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Token by token the row of the first set (index 0) or of the second (index 1)."""
    return torch.where(index.bool()[..., None], second[:, None, :], first[:, None, :])


@define(outputs=["y", "gate_out"], activations=["x"])
def norm_scale_shift_select(
    x: Tensor,
    scale0: Tensor,
    shift0: Tensor,
    gate0: Tensor,
    scale1: Tensor,
    shift1: Tensor,
    gate1: Tensor,
    index: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """LN(x) * (1 + scale) + shift and the gate, each token with the set that its index picks"""
    scale, shift = _picked(index, scale0, scale1), _picked(index, shift0, shift1)
    return _modulate(norm(x, weight, bias, "layer", eps), scale, shift), _picked(index, gate0, gate1)


@define(outputs=["y", "residual_out", "gate_out"], activations=["x", "residual"])
def residual_norm_scale_shift_select(
    x: Tensor,
    residual: Tensor,
    residual_gate: Tensor,
    scale0: Tensor,
    shift0: Tensor,
    gate0: Tensor,
    scale1: Tensor,
    shift1: Tensor,
    gate1: Tensor,
    index: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor, Tensor]:
    """r = residual + residual_gate * x; then as norm_scale_shift_select on r, which is returned too"""
    residual_out = (residual + over_tokens(residual_gate, x) * x).to(x.dtype)
    scale, shift = _picked(index, scale0, scale1), _picked(index, shift0, shift1)
    y = _modulate(norm(residual_out, weight, bias, "layer", eps), scale, shift)
    return y, residual_out, _picked(index, gate0, gate1)
