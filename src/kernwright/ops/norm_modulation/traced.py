"""The family as torch.library ops: what torch.compile puts into a graph in place of a call that it cannot look into.

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
    from kernwright.ops.norm_modulation import calls

    return calls.norm_scale_shift(
        x, scale, shift, weight, bias,
        norm_type=norm_type, eps=eps, backend=backend, contract=contract,  # type: ignore[arg-type]
    )  # fmt: skip


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
    from kernwright.ops.norm_modulation import calls

    return calls.residual_norm_scale_shift(
        x, residual, scale, shift, gate, weight, bias,
        norm_type=norm_type, eps=eps, backend=backend, contract=contract,  # type: ignore[arg-type]
    )  # fmt: skip


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
