"""The family as torch.library ops: what torch.compile puts into a graph in place of a call that it cannot look into,
and what a mode, a transform or a tensor of another class (a fake one, say) meets, which then goes its own way.

What runs when the graph runs follows the preference of that moment. A call that trains never leads here; where somebody
differentiates the op all the same, its reference runs once more for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernwright.ops.definition import Op
from kernwright.ops.plain_norm import definition
from kernwright.ops.plain_norm.implementations import DISPATCHERS
from kernwright.runtime.call import Call


@torch.library.custom_op("kernwright::layer_norm", mutates_args=())
def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, backend: str | None, contract: str | None
) -> Tensor:
    return _run("layer_norm", (x, weight, bias), eps, backend, contract)


@torch.library.custom_op("kernwright::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor | None, eps: float, backend: str | None, contract: str | None) -> Tensor:
    return _run("rms_norm", (x, weight), eps, backend, contract)


def _run(op: str, given: tuple[Tensor | None, ...], eps: float, backend: str | None, contract: str | None) -> Tensor:
    """Where every watcher has had its turn: the short way, or the dispatcher. The public call would lead back here."""
    own, x = DISPATCHERS[op], given[0]
    assert x is not None
    launch = own.latest(backend, contract)  # type: ignore[arg-type]
    if launch is not None and type(x) is Tensor and not x.is_meta and not torch.is_grad_enabled():
        y = torch.empty_like(x)
        if launch(*given, eps, y):
            return y
    result: Tensor = own.run(given, {"eps": eps}, backend, contract)  # type: ignore[arg-type]
    # Torch's own norms make any layout dense; a graph was promised that of x.
    promised = torch.empty_like(x, device="meta")
    return result if result.stride() == promised.stride() else torch.empty_like(x).copy_(result)


@layer_norm.register_fake
def _(x: Tensor, *others: Any) -> Tensor:
    return _promised(definition.layer_norm, (x, *others))


@rms_norm.register_fake
def _(x: Tensor, *others: Any) -> Tensor:
    return _promised(definition.rms_norm, (x, *others))


def _promised(op: Op, arguments: tuple[Any, ...]) -> Tensor:
    """A graph is refused for the same reasons as a call."""
    tensors = len(op.tensor_parameters)
    DISPATCHERS[op.name].check(Call.of(op, arguments[:tensors], {"eps": arguments[tensors]}))
    return torch.empty_like(arguments[0])


def _remember(tensors: int) -> Callable[..., None]:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[:tensors])
        ctx.eps = inputs[tensors]

    return setup_context


def _backward(op: Op) -> Callable[..., tuple[Tensor | None, ...]]:
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            given = [
                None if tensor is None else tensor.detach().requires_grad_(needed)
                for tensor, needed in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
            ]
            result = op.reference(*given, eps=ctx.eps)
        assert isinstance(result, Tensor)
        wanted = [tensor for tensor in given if tensor is not None and tensor.requires_grad]
        found = iter(torch.autograd.grad(result, wanted, gradient))
        own = [next(found) if tensor is not None and tensor.requires_grad else None for tensor in given]
        return (*own, None, None, None)

    return backward


layer_norm.register_autograd(_backward(definition.layer_norm), setup_context=_remember(3))
rms_norm.register_autograd(_backward(definition.rms_norm), setup_context=_remember(2))
