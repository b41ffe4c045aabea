"""The public calls. Without a native kernel there is no short way yet: `runtime/long_way.py` is all of it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.ops.ernie.implementations import DISPATCHERS
from kernwright.ops.ernie.traced import OPS
from kernwright.runtime.long_way import LongWay
from kernwright.runtime.preference import Backend

_norm, _behind_residual, _gate = (LongWay(DISPATCHERS[name], OPS[name]) for name in DISPATCHERS)


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
    its own; weight is `[D]`. backend: "triton" or "torch", for this call. contract: "exact" runs the reference. out
    must not overlap the inputs.
    """
    return _norm.call((x, weight, scale, shift), {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


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
    given = (residual, update, gate, weight, scale, shift)
    return _behind_residual.call(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


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
    return _gate.call((residual, update, gate), {}, backend, contract, out)  # type: ignore[no-any-return]
