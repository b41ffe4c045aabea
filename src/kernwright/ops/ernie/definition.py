"""ERNIE-Image's norm and modulation. What it ships is compiled, not eager, and the definitions spell that rounding out.

The compiler fuses each function into one kernel that stays in float32 between its loads and its stores: nothing rounds
on the way, and the norm sees the residual before that is rounded for its own store.
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
    """rms(x) * weight * (1 + scale) + shift in float32, rounded once to x's dtype.

    scale and shift broadcast as torch has it: one number, `[D]`, `[B, 1, D]`, `[B, S, D]`, `[S, D]`, each in a dtype of
    its own; weight is `[D]`. backend: "cuda", "triton" or "torch", for this call. contract: "exact" runs the reference.
    out must not overlap the inputs.
    """
    return _modulated(wide(x), weight, scale, shift, eps).to(x.dtype)


@define(outputs=["residual_out", "y"], activations=["residual", "update"])
def ernie_residual_norm_modulate(
    residual: Tensor, update: Tensor, gate: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """r = residual + gate * update; returns it and rms(r) * weight * (1 + scale) + shift, of r before it is rounded."""
    joined = wide(residual) + wide(gate) * wide(update)
    return joined.to(residual.dtype), _modulated(joined, weight, scale, shift, eps).to(residual.dtype)


@define(outputs=["out"], activations=["residual", "update"], contract="exact")
def ernie_residual_gate(residual: Tensor, update: Tensor, gate: Tensor) -> Tensor:
    """residual + gate * update in float32, rounded once to the residual's dtype, with the bits of the reference.

    Where `ops.residual_gate` rounds the product as well, this does not.
    """
    return (wide(residual) + wide(gate) * wide(update)).to(residual.dtype)
