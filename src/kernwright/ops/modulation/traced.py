"""The family as torch.library ops: what torch.compile puts into a graph in place of a call that it cannot look into,
and what a mode, a transform or a tensor of another class (a fake one, say) meets, which then goes its own way.

What runs when the graph runs is the public call itself, with the preference of that moment. A call that trains never
leads here; where somebody differentiates the op all the same, its reference runs once more for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernwright.ops.argument_checks import broadcast_shape
from kernwright.ops.definition import Op
from kernwright.ops.modulation import definition
from kernwright.ops.modulation.arguments import result_like
from kernwright.ops.modulation.implementations import DISPATCHERS
from kernwright.runtime.call import Call


@torch.library.custom_op("kernwright::scale_shift", mutates_args=())
def scale_shift(
    x: Tensor, scale: Tensor, shift: Tensor, scale_constant: float, backend: str | None, contract: str | None
) -> Tensor:
    return _run(definition.scale_shift, (x, scale, shift), (scale_constant,), backend, contract)


@torch.library.custom_op("kernwright::residual_gate", mutates_args=())
def residual_gate(residual: Tensor, update: Tensor, gate: Tensor, backend: str | None, contract: str | None) -> Tensor:
    return _run(definition.residual_gate, (residual, update, gate), (), backend, contract)


@torch.library.custom_op("kernwright::broadcast_add", mutates_args=())
def broadcast_add(a: Tensor, b: Tensor, backend: str | None, contract: str | None) -> Tensor:
    return _run(definition.broadcast_add, (a, b), (), backend, contract)


def _run(
    op: Op, tensors: tuple[Tensor, ...], scalars: tuple[float, ...], backend: str | None, contract: str | None
) -> Tensor:
    """Where every watcher has had its turn: the short way, or the dispatcher. The public call would lead back here."""
    own = DISPATCHERS[op.name]
    launch = own.latest(backend, None)  # type: ignore[arg-type]  # every kernel is exact
    if launch is not None and not torch.is_grad_enabled():
        out = result_like(op.name, tensors)
        if launch(*tensors, *scalars, out):
            return out
    named = dict(zip(op.scalar_defaults, scalars, strict=True))
    return own.run(tensors, named, backend, contract)  # type: ignore[arg-type, no-any-return]


def _fake(op: Op) -> Callable[..., Tensor]:
    """A graph is refused for the same reasons as a call."""

    def fake(*arguments: Any) -> Tensor:
        tensors = arguments[: len(op.tensor_parameters)]
        DISPATCHERS[op.name].check(Call.of(op, tensors, {}))
        if op.name != "residual_gate" or tensors[0].shape == tensors[1].shape:
            return result_like(op.name, tensors)
        residual, update = tensors[:2]
        return torch.empty(broadcast_shape(residual.shape, update.shape), dtype=residual.dtype, device=residual.device)

    return fake


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*(value for value in inputs if isinstance(value, Tensor)))
    ctx.scalars = [value for value in inputs if isinstance(value, float)]
    ctx.others = len(inputs) - len(ctx.saved_tensors)


def _backward(op: Op) -> Callable[..., tuple[Tensor | None, ...]]:
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            given = [
                tensor.detach().requires_grad_(needed)
                for tensor, needed in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
            ]
            result = op.reference(*given, **dict(zip(op.scalar_defaults, ctx.scalars, strict=True)))
        assert isinstance(result, Tensor)
        found = iter(torch.autograd.grad(result, [tensor for tensor in given if tensor.requires_grad], gradient))
        own = [next(found) if tensor.requires_grad else None for tensor in given]
        return (*own, *[None] * ctx.others)

    return backward


for _op, _traced in (
    (definition.scale_shift, scale_shift),
    (definition.residual_gate, residual_gate),
    (definition.broadcast_add, broadcast_add),
):
    _traced.register_fake(_fake(_op))
    _traced.register_autograd(_backward(_op), setup_context=_remember)
