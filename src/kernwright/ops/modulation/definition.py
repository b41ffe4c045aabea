"""Modulation, gates and broadcast sums without a norm. Every step rounds where the eager chain does: all are exact.

A float32 modulation of half-width tokens promotes, and the result is rounded to the tokens' dtype once.
"""

from __future__ import annotations

from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import over_tokens


@define(outputs=["y"], activations=["x", "shift"], contract="exact")
def scale_shift(x: Tensor, scale: Tensor, shift: Tensor, *, scale_constant: float = 1.0) -> Tensor:
    """x * (scale_constant + scale) + shift, over x `[B, S, D]`, with the bits of the eager chain.

    scale and shift: one number, `[D]`, `[B, D]`, `[B, 1, D]`, `[B, S, D]`, or `[B, F, 1, D]` per frame of S / F tokens,
    each in a dtype of its own. Beside x of more axes they broadcast as torch has it. backend: "cuda", "triton" or
    "torch", for this call. out must not overlap the inputs.
    """
    scale, shift = over_tokens(scale, x), over_tokens(shift, x)
    return (x * (scale_constant + scale) + shift).to(x.dtype)


@define(outputs=["out"], activations=["residual", "update"], contract="exact")
def residual_gate(residual: Tensor, update: Tensor, gate: Tensor) -> Tensor:
    """residual + update * gate, with the bits of the eager chain.

    residual and update are `[B, S, D]`; the gate has the layouts of scale and shift in scale_shift, as has all else.
    """
    return (residual + update * over_tokens(gate, update)).to(residual.dtype)


@define(outputs=["out"], activations=["a", "b"], contract="exact")
def broadcast_add(a: Tensor, b: Tensor) -> Tensor:
    """a + b, where either may be one row for many, with the eager chain's bits. out must not overlap the inputs."""
    return a + b
