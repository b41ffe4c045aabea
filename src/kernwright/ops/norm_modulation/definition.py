"""Norm followed by scale and shift: plain, with a gated residual, and with a choice of two modulations per token.

Rounding is that of the models in eager mode: the input of the norm is in x's dtype, statistics in float32, the norm's
output in x's dtype. Scale and shift are applied in their own dtype (float32 modulation promotes), and the result is in
x's dtype.
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
    """Return `norm(x) * (1 + scale) + shift`, with the norm over the last axis of x.

    Arguments:
        x: `[B, S, D]` or `[S, D]`.
        scale, shift: one number, `[D]`, `[B, D]`, `[B, 1, D]`, `[B, S, D]`, or `[B, F, 1, D]` for F frames of S / F
            tokens, in any floating point dtype. If x has more than three axes, they broadcast by torch's rules.
        weight, bias: `[D]`, the affine parameters of the norm. A bias needs a weight, and an RMS norm has none.
        norm_type: "layer" or "rms".
        eps: the number added to the variance.

    With `contract="exact"`, a LayerNorm without weight and bias has kernels that sum in torch's order. They run if the
    device has shown that they give torch's bits; otherwise the eager chain runs.
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
    """Return `norm(r) * (1 + scale) + shift` and r, where `r = residual + gate * x`.

    Arguments:
        x: `[B, S, D]` or `[S, D]`.
        residual: the shape of x. r has the dtype of x; `add_norm` keeps that of the residual.
        gate: the layouts of scale and shift. Without a gate, `r = residual + x`.

    The other arguments are those of `norm_scale_shift`.
    """
    gated = x if gate is None else over_tokens(gate, x) * x
    res_out = (residual + gated).to(x.dtype)
    return _modulate(norm(res_out, weight, bias, norm_type, eps), scale, shift), res_out


def _picked(index: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return for each token the row of the first set (index 0) or of the second (index 1)."""
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
    """Return `LayerNorm(x) * (1 + scale) + shift` and a gate, where each token picks one of two sets of all three.

    Arguments:
        x: `[B, S, D]`.
        scale0, shift0, gate0: the first set, `[B, D]` each.
        scale1, shift1, gate1: the second set, `[B, D]` each.
        index: `[B, S]`, integers or booleans. 0 picks the first set, every other number the second.

    The other arguments are those of `norm_scale_shift`.
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
    """Return the norm_scale_shift_select of `r = residual + residual_gate * x`, r itself, and the gate of each token.

    Arguments:
        x, residual: `[B, S, D]`. r has the dtype of x.
        residual_gate: the layouts of scale and shift in `norm_scale_shift`.

    The other arguments are those of `norm_scale_shift_select`.
    """
    residual_out = (residual + over_tokens(residual_gate, x) * x).to(x.dtype)
    scale, shift = _picked(index, scale0, scale1), _picked(index, shift0, shift1)
    y = _modulate(norm(residual_out, weight, bias, "layer", eps), scale, shift)
    return y, residual_out, _picked(index, gate0, gate1)
