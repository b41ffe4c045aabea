"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

As in norm_modulation: no binding of signatures, no look at shapes. The foreign function checks the tensors itself, and
answers whether it took them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, empty_like

from kernwright.ops.definition import Contract
from kernwright.ops.ernie.implementations import DISPATCHERS
from kernwright.ops.ernie.traced import OPS
from kernwright.runtime.long_way import (
    MISFITS,
    LongWay,
    any_trains,
    are_outputs,
    goes_on,
    is_compiling,
    is_grad_enabled,
    modes,
)
from kernwright.runtime.outputs import written
from kernwright.runtime.preference import Backend

_norm, _behind_residual, _gate = DISPATCHERS.values()
_norm_otherwise, _behind_residual_otherwise, _gate_otherwise = (
    LongWay(DISPATCHERS[name], OPS[name]) for name in DISPATCHERS
)


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
    given = (x, weight, scale, shift)
    if is_compiling() or type(x) is not Tensor or modes():
        return _norm_otherwise.watched(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _norm.latest(backend, contract)
    if launch is not None and not (is_grad_enabled() and any_trains(given)):
        y = empty_like(x) if out is None else out
        try:
            if launch(x, weight, scale, shift, eps, y):
                return y if out is None or not is_grad_enabled() else written(y)
            del y
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    return _norm_otherwise.run(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


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
    if is_compiling() or type(residual) is not Tensor or modes():
        return _behind_residual_otherwise.watched(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _behind_residual.latest(backend, contract)
    if launch is not None and (out is None or are_outputs(out, 2)) and not (is_grad_enabled() and any_trains(given)):
        total, y = (empty_like(residual), empty_like(residual)) if out is None else out
        try:
            if launch(residual, update, gate, weight, scale, shift, eps, total, y):
                return (total, y) if out is None or not is_grad_enabled() else written((total, y))
            del total, y
        except MISFITS as misfit:
            if not goes_on(misfit, residual):
                raise
    return _behind_residual_otherwise.run(given, {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


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
    given = (residual, update, gate)
    if is_compiling() or type(residual) is not Tensor or modes():
        return _gate_otherwise.watched(given, {}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _gate.latest(backend, contract)
    if launch is not None and not (is_grad_enabled() and any_trains(given)):
        y = empty_like(residual) if out is None else out
        try:
            if launch(residual, update, gate, y):
                return y if out is None or not is_grad_enabled() else written(y)
            del y
        except MISFITS as misfit:
            if not goes_on(misfit, residual):
                raise
    return _gate_otherwise.run(given, {}, backend, contract, out)  # type: ignore[no-any-return]
