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
    """norm(x) * (1 + scale) + shift, over x `[B, S, D]`.

    scale and shift: one number, `[D]`, `[B, D]`, `[B, 1, D]`, `[B, S, D]`, or `[B, F, 1, D]` per frame of S / F tokens,
    each in a dtype of its own. Beside x of more axes they broadcast as torch has it. norm_type: "layer" or "rms".
    backend: "cuda", "cpu", "triton" or "torch", for this call. contract: "exact" runs, for LayerNorm without weight and
    bias, a kernel that norms in torch's order where the device has shown that it has torch's bits, and else the eager
    chain. out must not overlap the inputs.
    """
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
    """r = residual + gate * x (no gate: residual + x); returns norm(r) * (1 + scale) + shift, and r.

    r has x's dtype, whatever the residual's (add_norm keeps the residual's). The gate has the layouts of scale and
    shift; all else as in norm_scale_shift. out: both tensors.
    """
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
    """LN(x) * (1 + scale) + shift and the gate, `[B, S, D]` both, each token with the set that its index picks.

    The sets are rows `[B, D]`, the index `[B, S]` of integers or booleans: 0 picks the first set, any other number the
    second, so that no number leads outside them. All else as in norm_scale_shift.
    """
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
    """r = residual + residual_gate * x; then norm_scale_shift_select of r. Returns y, r and the chosen gate.

    residual_gate has the layouts of scale and shift in norm_scale_shift.
    """
    residual_out = (residual + over_tokens(residual_gate, x) * x).to(x.dtype)
    scale, shift = _picked(index, scale0, scale1), _picked(index, shift0, shift1)
    y = _modulate(norm(residual_out, weight, bias, "layer", eps), scale, shift)
    return y, residual_out, _picked(index, gate0, gate1)
