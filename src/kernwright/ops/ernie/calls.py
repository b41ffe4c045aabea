"""The public calls: their signatures, and what each op has of its own; `runtime/fast_path.py` has all else."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kernwright.core.op import Contract
from kernwright.ops.ernie.implementations import DISPATCHERS, PROMISES
from kernwright.runtime.fast_path import PublicCall, public_call
from kernwright.runtime.preference import Backend
from kernwright.runtime.slow_path import slow_paths

_ways = slow_paths(DISPATCHERS, PROMISES)
_norm: PublicCall[Tensor] = public_call(_ways["ernie_norm_modulate"])
_behind_residual: PublicCall[tuple[Tensor, Tensor]] = public_call(_ways["ernie_residual_norm_modulate"])
_gate: PublicCall[Tensor] = public_call(_ways["ernie_residual_gate"])


def ernie_norm_modulate(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """rms(x) * weight * (1 + scale) + shift in float32, rounded once to x's dtype.

    scale and shift broadcast as torch has it: one number, `[D]`, `[B, 1, D]`, `[B, S, D]`, `[S, D]`, each in a dtype of
    its own; weight is `[D]`. backend: "cuda", "triton" or "torch", for this call. contract: "exact" runs the reference.
    out must not overlap the inputs.
    """
    return _norm((x, weight, scale, shift, eps), backend, contract, out)


def ernie_residual_norm_modulate(
    residual: Tensor,
    update: Tensor,
    gate: Tensor,
    weight: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """r = residual + gate * update; returns it and rms(r) * weight * (1 + scale) + shift, of r before it is rounded."""
    return _behind_residual((residual, update, gate, weight, scale, shift, eps), backend, contract, out)


def ernie_residual_gate(
    residual: Tensor,
    update: Tensor,
    gate: Tensor,
    *,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """residual + gate * update in float32, rounded once to the residual's dtype, with the bits of the reference.

    Where `ops.residual_gate` rounds the product as well, this does not.
    """
    return _gate((residual, update, gate), backend, contract, out)
