"""Norm behind a tanh gate. Every step rounds to the tokens' dtype, as Z-Image's eager chain does."""

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
    """norm(x) * tanh(scale) + shift, over x `[B, S, D]`: with a gate and a residual, residual + tanh(gate) * norm(x).

    scale and shift: one number, `[D]`, `[B, D]`, `[B, 1, D]`, `[B, S, D]`, or `[B, F, 1, D]` per frame of S / F tokens,
    each in a dtype of its own. Beside x of more axes they broadcast as torch has it. norm_type: "rms" or "layer".
    backend: "cuda", "triton" or "torch", for this call. contract: "exact" runs the eager chain. out must not overlap
    the inputs.
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
    """y = norm(x) * tanh(scale) + shift; returns it and norm(y) * (1 + scale2), all as in norm_tanh_mul_add."""
    y = _gated(x, scale, shift, norm(x, weight, bias, norm_type, eps))
    return y, (norm(y, weight2, bias2, norm_type, eps) * (1 + over_tokens(scale2, x))).to(x.dtype)
