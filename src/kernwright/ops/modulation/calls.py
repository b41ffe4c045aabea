"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

A small kernel takes 2 us and its launch several, so what stands before the launch is counted: no binding of signatures,
no look at shapes. The foreign function checks the tensors itself, and answers whether it took them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.ops.modulation.implementations import DISPATCHERS
from kernwright.ops.modulation.traced import OPS
from kernwright.runtime.long_way import MISFITS, LongWay, any_trains, goes_on, is_compiling, is_grad_enabled, modes
from kernwright.runtime.outputs import written
from kernwright.runtime.preference import Backend

_scale_shift = DISPATCHERS["scale_shift"]
_residual_gate = DISPATCHERS["residual_gate"]
_broadcast_add = DISPATCHERS["broadcast_add"]
_scale_shift_otherwise = LongWay(_scale_shift, OPS["scale_shift"])
_residual_gate_otherwise = LongWay(_residual_gate, OPS["residual_gate"])
_broadcast_add_otherwise = LongWay(_broadcast_add, OPS["broadcast_add"])


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
    each in a dtype of its own. backend: "cuda", "triton" or "torch", for this call. out must not overlap the inputs.
    """
    given = (x, scale, shift)
    if is_compiling() or type(x) is not Tensor or modes():
        return _scale_shift_otherwise.watched(given, {"scale_constant": scale_constant}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _scale_shift.latest(backend, contract)
    if launch is not None and not (is_grad_enabled() and any_trains(given)):
        y = torch.empty_like(x) if out is None else out
        try:
            if launch(x, scale, shift, scale_constant, y):
                return y if out is None or not is_grad_enabled() else written(y)
            del y
        except MISFITS as misfit:
            if not goes_on(misfit, x):
                raise
    return _scale_shift_otherwise.run(given, {"scale_constant": scale_constant}, backend, contract, out)  # type: ignore[no-any-return]


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
    given = (residual, update, gate)
    if is_compiling() or type(residual) is not Tensor or modes():
        return _residual_gate_otherwise.watched(given, {}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _residual_gate.latest(backend, contract)
    if launch is not None and not (is_grad_enabled() and any_trains(given)):
        y = torch.empty_like(residual) if out is None else out
        try:
            if launch(residual, update, gate, y):
                return y if out is None or not is_grad_enabled() else written(y)
            del y
        except MISFITS as misfit:
            if not goes_on(misfit, residual):
                raise
    return _residual_gate_otherwise.run(given, {}, backend, contract, out)  # type: ignore[no-any-return]


def broadcast_add(
    a: Tensor,
    b: Tensor,
    *,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """a + b, where either may be one row for many, with the eager chain's bits. out must not overlap the inputs."""
    given = (a, b)
    if is_compiling() or type(a) is not Tensor or modes():
        return _broadcast_add_otherwise.watched(given, {}, backend, contract, out)  # type: ignore[no-any-return]
    launch = _broadcast_add.latest(backend, contract)
    if launch is not None and not (is_grad_enabled() and any_trains(given)):
        try:
            # The larger one has the sum's shape, as a rule; where it has not, the foreign function refuses.
            y = torch.empty_like(a if a.numel() >= b.numel() else b) if out is None else out
            if launch(a, b, y):
                return y if out is None or not is_grad_enabled() else written(y)
            del y
        except MISFITS as misfit:
            if not goes_on(misfit, a):
                raise
    return _broadcast_add_otherwise.run(given, {}, backend, contract, out)  # type: ignore[no-any-return]
