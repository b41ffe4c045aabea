"""LongWay: how an op's public call goes on where the short way, straight to a foreign function, is not for it.

The short way stands in each public function by itself: a small kernel takes 2 us and its launch several, so what stands
before the launch is counted, and a function more would show. What it asks on its way is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.runtime.dispatch import Dispatcher, Out, check_results
from kernwright.runtime.preference import Backend

Given = Sequence[Tensor | None]
is_compiling, is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
# Whoever watches or rewrites calls must see an op of torch.library: a compiler, a mode, a transform such as vmap, a
# class of tensors of its own. Such a tensor may have no memory at all.
modes, transforms = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack


def any_trains(given: Given) -> bool:
    # A generator of its own would cost as much as all else that a call asks.
    try:
        for tensor in given:
            if tensor is not None and tensor.requires_grad:
                return True
    except AttributeError:  # it is no tensor, as whoever looks closer will say
        return False
    return False


def is_without_memory(first: Tensor) -> bool:
    """What no foreign function can be given: found out by its error, since to ask before every call would cost."""
    return first.is_meta or transforms() is not None


# What a call on the short way ends in where its arguments are not what they should be, or nowhere.
MISFITS = (RuntimeError, TypeError, AttributeError)


def goes_on(misfit: Exception, first: Tensor) -> bool:
    """Whether the long way is asked after all. It names an argument that is no tensor."""
    return not isinstance(misfit, RuntimeError) or is_without_memory(first)


def are_outputs(out: Out, count: int) -> bool:
    """So many in a list or a tuple. A tensor can be unpacked as well, into its parts."""
    return isinstance(out, (tuple, list)) and len(out) == count


class LongWay:
    """One op's: past those who watch calls, and through the dispatcher. `traced` is the op of torch.library."""

    def __init__(self, dispatcher: Dispatcher, traced: Callable[..., Any]) -> None:
        self._dispatcher, self._traced = dispatcher, traced

    def call(
        self,
        given: Given,
        scalars: Mapping[str, Any],
        backend: Backend | None,
        contract: Contract | None,
        out: Out,
    ) -> Any:
        """All of a public call, where the op has no foreign function."""
        if is_compiling() or type(given[0]) is not Tensor or modes():
            return self.watched(given, scalars, backend, contract, out)
        return self.run(given, scalars, backend, contract, out)

    def run(
        self,
        given: Given,
        scalars: Mapping[str, Any],
        backend: Backend | None,
        contract: Contract | None,
        out: Out,
    ) -> Any:
        if transforms() is not None:
            return self.watched(given, scalars, backend, contract, out)
        return self._dispatcher.run(given, scalars, backend, contract, out)

    def watched(
        self,
        given: Given,
        scalars: Mapping[str, Any],
        backend: Backend | None,
        contract: Contract | None,
        out: Out,
    ) -> Any:
        first, op = given[0], self._dispatcher.op
        if not isinstance(first, Tensor):  # which the dispatcher says
            return self._dispatcher.run(given, scalars, backend, contract, out)
        if out is not None:
            self._dispatcher.check_out(first, given, out)
        # Traced as what it is: torch knows its gradient. What is changed in place has no other way through a transform.
        if (is_grad_enabled() and any_trains(given)) or (
            op.inplace and not is_compiling() and transforms() is not None
        ):
            return op.reference(*given, **scalars)
        result = self._traced(*given, *scalars.values(), backend, contract)
        if out is None:
            return result
        check_results(op, result, out)
        if isinstance(out, Tensor):
            return out.copy_(result)
        return tuple(own.copy_(found) for own, found in zip(out, result, strict=True))
