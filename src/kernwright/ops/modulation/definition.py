"""Modulation, gates and broadcast sums without a norm. Every step rounds where the eager chain does: all are exact.

A float32 modulation of half-width tokens promotes, and the result is rounded to the tokens' dtype once.
"""

from __future__ import annotations

from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import over_tokens


@define(outputs=["y"], activations=["x", "shift"], contract="exact")
def scale_shift(x: Tensor, scale: Tensor, shift: Tensor, *, scale_constant: float = 1.0) -> Tensor:
    """x * (scale_constant + scale) + shift"""
    scale, shift = over_tokens(scale, x), over_tokens(shift, x)
    return (x * (scale_constant + scale) + shift).to(x.dtype)


@define(outputs=["out"], activations=["residual", "update"], contract="exact")
def residual_gate(residual: Tensor, update: Tensor, gate: Tensor) -> Tensor:
    """residual + update * gate"""
    return (residual + update * over_tokens(gate, update)).to(residual.dtype)


@define(outputs=["out"], activations=["a", "b"], contract="exact")
def broadcast_add(a: Tensor, b: Tensor) -> Tensor:
    """a + b, where either may be one row for many"""
    return a + b
