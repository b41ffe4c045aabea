"""ERNIE-Image's norm and modulation. The model ships compiled code, and the definitions spell out its rounding.

The compiler fuses each function into one kernel that stays in float32 between its loads and its stores. Nothing rounds
in between, and the norm uses the residual before it is rounded for its own store.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import wide


def _modulated(x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * wide(weight)
    return normed * (1 + wide(scale)) + wide(shift)


@define(outputs=["y"], activations=["x"])
def ernie_norm_modulate(x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Return `rms(x) * weight * (1 + scale) + shift`, computed in float32 and rounded once to the dtype of x.

    Arguments:
        x: `[B, S, D]` or `[S, D]`.
        weight: `[D]`.
        scale, shift: they broadcast over x by torch's rules, as `[D]`, `[B, 1, D]`, `[S, D]` or `[B, S, D]`, in any
            floating point dtype.
        eps: the number added to the mean of squares.
    """
    return _modulated(wide(x), weight, scale, shift, eps).to(x.dtype)


@define(outputs=["residual_out", "y"], activations=["residual", "update"])
def ernie_residual_norm_modulate(
    residual: Tensor, update: Tensor, gate: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Return `r = residual + gate * update` and `rms(r) * weight * (1 + scale) + shift`.

    The norm is computed from r before r is rounded to the residual's dtype. The gate broadcasts as scale and shift do.
    The other arguments are those of `ernie_norm_modulate`.
    """
    joined = wide(residual) + wide(gate) * wide(update)
    return joined.to(residual.dtype), _modulated(joined, weight, scale, shift, eps).to(residual.dtype)


@define(outputs=["out"], activations=["residual", "update"], contract="exact")
def ernie_residual_gate(residual: Tensor, update: Tensor, gate: Tensor) -> Tensor:
    """Return `residual + gate * update`, computed in float32 and rounded once to the residual's dtype.

    The result has the bits of the reference. `residual_gate` rounds the product, too.
    """
    return (wide(residual) + wide(gate) * wide(update)).to(residual.dtype)
