"""Traced op: an op registered with torch.library.

torch.compile puts it into a graph instead of tracing the call. Dispatch modes, transforms and tensor subclasses, such
as fake tensors, see it too.

The implementation is chosen when the graph runs, by the preferences of that moment. The preferences of blocks inside
the traced function are arguments of the op. A call that needs a gradient runs the reference and does not come here. If
the op is differentiated all the same, its reference runs once more for the gradient. The schema names the arguments
that an op changes in place, and torch gives such an op no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kernwright.core.op import Contract, Op
from kernwright.runtime.call import Call, run_reference
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.outputs import Promise, given_back
from kernwright.runtime.preference import BEST, Backend, preferring

_KINDS = {bool: "bool", int: "int", float: "float", str: "str"}


def schema(op: Op) -> str:
    """Return the schema: tensors, scalars, backend, contract and strictness. Tensors that a call changes are marked."""
    marks = {name: f"(a{number}!)" for number, name in enumerate(op.inplace)}
    tensors = [
        f"Tensor{marks.get(own.name, '')}{'?' if own.optional else ''} {own.name}" for own in op.tensor_parameters
    ]
    scalars = [f"{_KINDS[type(default)]} {name}" for name, default in op.scalar_defaults.items()]
    results = ", ".join(["Tensor"] * len(op.outputs))
    arguments = ", ".join([*tensors, *scalars, "str? backend", "str? contract", "bool? strict=None"])
    return f"({arguments}) -> {results if len(op.outputs) == 1 else f'({results})'}"


def traced(dispatcher: Dispatcher) -> Callable[..., Any]:
    """Register the op as `kernwright::<name>` and return it. Its fake implementation follows from the definition."""
    op, tensors, promise = dispatcher.op, len(dispatcher.op.tensor_parameters), Promise(dispatcher.op)
    count = tensors + len(op.scalar_defaults)

    def run(*arguments: Any) -> Any:
        """Run the op when no compiler, mode or transform is left above it."""
        own, (backend, contract, *rest) = arguments[:count], arguments[count:]
        strict = rest[0] if rest else None  # torch omits arguments that equal their default
        if strict is None and backend != BEST:
            return launched(own, backend, contract)
        with preferring(BEST if backend == BEST else None, strict):
            return launched(own, None if backend == BEST else backend, contract)

    def launched(own: Sequence[Any], backend: Backend | None, contract: Contract | None) -> Any:
        """Launch the latest foreign function, or run the dispatcher. The public call would come back here."""
        given, scalars = own[:tensors], own[tensors:]
        first = given[0]
        launch = dispatcher.latest(backend, contract)
        if launch is not None and type(first) is Tensor and not first.is_meta and not torch.is_grad_enabled():
            outs = promise(given, _named(op, scalars))
            if launch(*given, *scalars, *outs):
                return given_back(outs)
        named = _named(op, scalars)
        return _as_promised(dispatcher.run(given, named, backend, contract), promise(given, named, "meta"))

    def fake(*arguments: Any) -> Any:
        """Return outputs without memory. Raise BadArgument for the same arguments as an eager call."""
        given, scalars = arguments[:tensors], _named(op, arguments[tensors:count])
        dispatcher.check(Call.of(op, given, scalars))
        return given_back(promise(given, scalars))

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[:tensors])
        ctx.scalars, ctx.wishes = inputs[tensors:count], len(inputs) - count

    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            given = [
                None if tensor is None else tensor.detach().requires_grad_(needed)
                for tensor, needed in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
            ]
            result = run_reference(op, given, _named(op, ctx.scalars))
        results = (result,) if isinstance(result, Tensor) else tuple(result or ())
        # A result that is returned unchanged, such as a gate, may not depend on any tensor that needs a gradient.
        reached = [pair for pair in zip(results, gradients, strict=True) if pair[0].requires_grad]
        wanted = [tensor for tensor in given if tensor is not None and tensor.requires_grad]
        outputs, weights = [pair[0] for pair in reached], [pair[1] for pair in reached]
        found = iter(torch.autograd.grad(outputs, wanted, weights, allow_unused=True))
        own = [next(found) if tensor is not None and tensor.requires_grad else None for tensor in given]
        return (*own, *(None for _ in ctx.scalars), *(None for _ in range(ctx.wishes)))

    made = torch.library.custom_op(f"kernwright::{op.name}", run, mutates_args=op.inplace, schema=schema(op))
    made.register_fake(fake)
    if not op.inplace:
        made.register_autograd(backward, setup_context=setup_context)
    return made


def _named(op: Op, scalars: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(op.scalar_defaults, scalars, strict=True))


def _as_promised(result: Any, promised: Sequence[Tensor]) -> Any:
    """Return results with the strides that the fake implementation gave to the graph; the reference's may differ."""
    results = (result,) if isinstance(result, Tensor) else tuple(result or ())
    return given_back(
        [
            own if own.stride() == wanted.stride() else torch.empty_like(wanted, device=own.device).copy_(own)
            for own, wanted in zip(results, promised, strict=True)
        ]
    )
