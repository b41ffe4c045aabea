"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

A small kernel takes 2 us and its launch several, so what stands before the launch is counted: no binding of signatures,
no look at shapes. The foreign function checks the tensors itself, and answers whether it took them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kernwright.ops.definition import Contract, Op
from kernwright.ops.modulation import definition, traced
from kernwright.ops.modulation.implementations import DISPATCHERS
from kernwright.runtime.preference import Backend

_scale_shift = DISPATCHERS["scale_shift"]
_residual_gate = DISPATCHERS["residual_gate"]
_broadcast_add = DISPATCHERS["broadcast_add"]
_is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
# Whoever watches or rewrites calls must see an op of torch.library: a compiler, a mode, a transform such as vmap, a
# class of tensors of its own. Such a tensor may have no memory at all.
_modes, _transforms = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack


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
    if _is_compiling() or type(x) is not Tensor or _modes():
        return _watched(definition.scale_shift, given, (scale_constant,), backend, contract, out)
    launch = _scale_shift.latest(backend, None)
    if launch is not None and not (_is_grad_enabled() and _any_trains(given)):
        y = torch.empty_like(x) if out is None else out
        try:
            if launch(x, scale, shift, scale_constant, y):
                return y
        except RuntimeError:
            if not _is_without_memory(x):
                raise
    return _chosen(definition.scale_shift, given, {"scale_constant": scale_constant}, backend, contract, out)


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
    if _is_compiling() or type(residual) is not Tensor or _modes():
        return _watched(definition.residual_gate, given, (), backend, contract, out)
    launch = _residual_gate.latest(backend, None)
    if launch is not None and not (_is_grad_enabled() and _any_trains(given)):
        y = torch.empty_like(residual) if out is None else out
        try:
            if launch(residual, update, gate, y):
                return y
        except RuntimeError:
            if not _is_without_memory(residual):
                raise
    return _chosen(definition.residual_gate, given, {}, backend, contract, out)


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
    if _is_compiling() or type(a) is not Tensor or _modes():
        return _watched(definition.broadcast_add, given, (), backend, contract, out)
    launch = _broadcast_add.latest(backend, None)
    if launch is not None and not (_is_grad_enabled() and _any_trains(given)):
        # The larger one has the sum's shape, as a rule; where it has not, the foreign function refuses.
        y = torch.empty_like(a if a.numel() >= b.numel() else b) if out is None else out
        try:
            if launch(a, b, y):
                return y
        except RuntimeError:
            if not _is_without_memory(a):
                raise
    return _chosen(definition.broadcast_add, given, {}, backend, contract, out)


def _chosen(
    op: Op,
    given: tuple[Tensor, ...],
    scalars: Mapping[str, Any],
    backend: Backend | None,
    contract: Contract | None,
    out: Tensor | None,
) -> Tensor:
    if _transforms() is not None:
        return _watched(op, given, tuple(scalars.values()), backend, contract, out)
    return DISPATCHERS[op.name].run(given, scalars, backend, contract, out)  # type: ignore[no-any-return]


def _watched(
    op: Op,
    given: tuple[Tensor, ...],
    scalars: tuple[float, ...],
    backend: str | None,
    contract: str | None,
    out: Tensor | None,
) -> Tensor:
    if _is_grad_enabled() and _any_trains(given):  # traced as what it is: torch knows its gradient
        named = dict(zip(op.scalar_defaults, scalars, strict=True))
        return op.reference(*given, **named)  # type: ignore[return-value]
    result: Tensor = getattr(traced, op.name)(*given, *scalars, backend, contract)
    return result if out is None else out.copy_(result)


def _any_trains(tensors: tuple[Tensor, ...]) -> bool:
    return any(tensor.requires_grad for tensor in tensors)


def _is_without_memory(first: Tensor) -> bool:
    """What no foreign function can be given: found out by its error, since to ask before every call would cost."""
    return first.is_meta or _transforms() is not None
