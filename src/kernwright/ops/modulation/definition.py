"""Modulation, gates and broadcast sums without a norm. Every step rounds where the eager chain does: all are exact.

A float32 modulation of half-width tokens promotes, and the result is rounded to the tokens' dtype once.
"""

from __future__ import annotations

from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import over_tokens


@define(outputs=["y"], activations=["x", "shift"], contract="exact")
def scale_shift(x: Tensor, scale: Tensor, shift: Tensor, *, scale_constant: float = 1.0) -> Tensor:
    """Return `x * (scale_constant + scale) + shift`, with the bits of the eager chain.

    Arguments:
        x: `[B, S, D]` or `[S, D]`.
        scale, shift: one number, `[D]`, `[B, D]`, `[B, 1, D]`, `[B, S, D]`, or `[B, F, 1, D]` for F frames of S / F
            tokens, in any floating point dtype. If x has more than three axes, they broadcast by torch's rules.
        scale_constant: 1.0 for a modulation, 0.0 for a gate.
    """
    scale, shift = over_tokens(scale, x), over_tokens(shift, x)
    return (x * (scale_constant + scale) + shift).to(x.dtype)


@define(outputs=["out"], activations=["residual", "update"], contract="exact")
def residual_gate(residual: Tensor, update: Tensor, gate: Tensor) -> Tensor:
    """Return `residual + update * gate` in the residual's dtype, with the bits of the eager chain.

    Arguments:
        residual, update: `[B, S, D]` or `[S, D]`.
        gate: the layouts of scale and shift in `scale_shift`.
    """
    return (residual + update * over_tokens(gate, update)).to(residual.dtype)


@define(outputs=["out"], activations=["a", "b"], contract="exact")
def broadcast_add(a: Tensor, b: Tensor) -> Tensor:
    """Return `a + b`, with the bits of the eager chain. Both broadcast by torch's rules."""
    return a + b
