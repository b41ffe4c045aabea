"""The public calls: their signatures, and what each op has of its own; `runtime/fast_path.py` has all else."""

from __future__ import annotations

from torch import Tensor, empty_like

from kernwright.core.op import Contract
from kernwright.ops.modulation.implementations import DISPATCHERS, PROMISES
from kernwright.runtime.fast_path import PublicCall, public_call
from kernwright.runtime.preference import Backend
from kernwright.runtime.slow_path import slow_paths

_ways = slow_paths(DISPATCHERS, PROMISES)
_scale_shift: PublicCall[Tensor] = public_call(_ways["scale_shift"])
_residual_gate: PublicCall[Tensor] = public_call(_ways["residual_gate"])


def _like_larger(arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
    """It has the sum's shape, as a rule; where it has not, the foreign function refuses."""
    a, b = arguments
    return (empty_like(a if a.numel() >= b.numel() else b),)


_broadcast_add: PublicCall[Tensor] = public_call(_ways["broadcast_add"], _like_larger)


def scale_shift(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    scale_constant: float = 1.0,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """x * (scale_constant + scale) + shift, over x `[B, S, D]`, with the bits of the eager chain.

    scale and shift: one number, `[D]`, `[B, D]`, `[B, 1, D]`, `[B, S, D]`, or `[B, F, 1, D]` per frame of S / F tokens,
    each in a dtype of its own. Beside x of more axes they broadcast as torch has it. backend: "cuda", "triton" or
    "torch", for this call. out must not overlap the inputs.
    """
    return _scale_shift((x, scale, shift, scale_constant), backend, contract, out)


def residual_gate(
    residual: Tensor,
    update: Tensor,
    gate: Tensor,
    *,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """residual + update * gate, with the bits of the eager chain.

    residual and update are `[B, S, D]`; the gate has the layouts of scale and shift in scale_shift, as has all else.
    """
    return _residual_gate((residual, update, gate), backend, contract, out)


def broadcast_add(
    a: Tensor,
    b: Tensor,
    *,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """a + b, where either may be one row for many, with the eager chain's bits. out must not overlap the inputs."""
    return _broadcast_add((a, b), backend, contract, out)
