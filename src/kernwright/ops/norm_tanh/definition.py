"""Norm with a tanh gate. Every step rounds to the tokens' dtype, as Z-Image's eager chain does."""

from __future__ import annotations

import torch
from torch import Tensor

from kernwright.core.norms import norm
from kernwright.core.op import define
from kernwright.core.rounding import over_tokens


def _gated(x: Tensor, scale: Tensor, shift: Tensor, normed: Tensor) -> Tensor:
    return (normed * torch.tanh(over_tokens(scale, x)) + over_tokens(shift, x)).to(x.dtype)


@define(outputs=["y"], activations=["x", "shift"])
def norm_tanh_mul_add(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm_type: str = "rms",
    eps: float = 1e-5,
) -> Tensor:
    """Return `norm(x) * tanh(scale) + shift`. With a gate as scale and a residual as shift, this is a gated residual.

    Arguments:
        x: `[B, S, D]` or `[S, D]`.
        scale, shift: one number, `[D]`, `[B, D]`, `[B, 1, D]`, `[B, S, D]`, or `[B, F, 1, D]` for F frames of S / F
            tokens, in any floating point dtype. If x has more than three axes, they broadcast by torch's rules.
        weight, bias: `[D]`, the affine parameters of the norm.
        norm_type: "rms" or "layer".
        eps: the number added to the variance.
    """
    return _gated(x, scale, shift, norm(x, weight, bias, norm_type, eps))


@define(outputs=["y", "y2"], activations=["x", "shift"])
def norm_tanh_mul_add_norm_scale(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    scale2: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    weight2: Tensor | None = None,
    bias2: Tensor | None = None,
    *,
    norm_type: str = "rms",
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Return `y = norm(x) * tanh(scale) + shift` and `norm(y) * (1 + scale2)`.

    Arguments:
        scale2: the layouts of scale and shift.
        weight2, bias2: `[D]`, the affine parameters of the second norm.

    The other arguments are those of `norm_tanh_mul_add`.
    """
    y = _gated(x, scale, shift, norm(x, weight, bias, norm_type, eps))
    return y, (norm(y, weight2, bias2, norm_type, eps) * (1 + over_tokens(scale2, x))).to(x.dtype)
