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

from kernwright.ops.definition import Op
from kernwright.ops.norm_modulation import definition
from kernwright.ops.norm_modulation.implementations import DISPATCHERS
from kernwright.runtime.call import Call


@torch.library.custom_op("kernwright::norm_scale_shift", mutates_args=())
def norm_scale_shift(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    norm_type: str,
    eps: float,
    backend: str | None,
    contract: str | None,
) -> Tensor:
    given = (x, scale, shift, weight, bias)
    return _run("norm_scale_shift", given, norm_type, eps, backend, contract)  # type: ignore[no-any-return]


@torch.library.custom_op("kernwright::residual_norm_scale_shift", mutates_args=())
def residual_norm_scale_shift(
    x: Tensor,
    residual: Tensor,
    scale: Tensor,
    shift: Tensor,
    gate: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    norm_type: str,
    eps: float,
    backend: str | None,
    contract: str | None,
) -> tuple[Tensor, Tensor]:
    given = (x, residual, scale, shift, gate, weight, bias)
    return _run("residual_norm_scale_shift", given, norm_type, eps, backend, contract)  # type: ignore[no-any-return]


def _run(
    op: str, given: tuple[Tensor | None, ...], norm_type: str, eps: float, backend: str | None, contract: str | None
) -> Any:
    """Where every watcher has had its turn: the short way, or the dispatcher. The public call would lead back here."""
    own, named = DISPATCHERS[op], {"norm_type": norm_type, "eps": eps}
    x = given[0]
    launch = own.latest(backend, contract)  # type: ignore[arg-type]
    if launch is not None and type(x) is Tensor and not x.is_meta and not torch.is_grad_enabled():
        outs = [torch.empty_like(x) for _ in own.op.outputs]
        if launch(*given, norm_type, eps, *outs):
            return outs[0] if len(outs) == 1 else tuple(outs)
    return own.run(given, named, backend, contract)  # type: ignore[arg-type]


@norm_scale_shift.register_fake
def _(x: Tensor, *others: Any) -> Tensor:
    _checked(definition.norm_scale_shift, (x, *others))
    return torch.empty_like(x)


@residual_norm_scale_shift.register_fake
def _(x: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    _checked(definition.residual_norm_scale_shift, (x, *others))
    return torch.empty_like(x), torch.empty_like(x)


def _checked(op: Op, arguments: tuple[Any, ...]) -> None:
    """A graph is refused for the same reasons as a call."""
    tensors = len(op.tensor_parameters)
    norm_type, eps = arguments[tensors : tensors + 2]
    DISPATCHERS[op.name].check(Call.of(op, arguments[:tensors], {"norm_type": norm_type, "eps": eps}))


def _remember(tensors: int) -> Callable[..., None]:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[:tensors])
        ctx.norm_type, ctx.eps = inputs[tensors : tensors + 2]

    return setup_context


def _backward(op: Op) -> Callable[..., tuple[Tensor | None, ...]]:
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            given = [
                None if tensor is None else tensor.detach().requires_grad_(needed)
                for tensor, needed in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
            ]
            result = op.reference(*given, norm_type=ctx.norm_type, eps=ctx.eps)
        outputs = (result,) if isinstance(result, Tensor) else tuple(result or ())
        wanted = [tensor for tensor in given if tensor is not None and tensor.requires_grad]
        found = iter(torch.autograd.grad(outputs, wanted, gradients))
        own = [next(found) if tensor is not None and tensor.requires_grad else None for tensor in given]
        return (*own, None, None, None, None)

    return backward


norm_scale_shift.register_autograd(_backward(definition.norm_scale_shift), setup_context=_remember(5))
residual_norm_scale_shift.register_autograd(_backward(definition.residual_norm_scale_shift), setup_context=_remember(7))
