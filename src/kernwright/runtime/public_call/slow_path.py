"""SlowPath: how a public call runs when the fast path does not apply."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernwright.core.op import Contract
from kernwright.runtime.call import (
    BadArgument,
    any_trains,
    is_compiling,
    is_dynamo_compiling,
    plain,
    run_reference,
    transforms,
)
from kernwright.runtime.dispatch import Dispatcher, Out, check_reference_alone, check_results
from kernwright.runtime.outputs import dispatches_itself
from kernwright.runtime.preference import NOTHING, Backend, wish_of_blocks
from kernwright.runtime.public_call.traced import traced

# Whoever watches or rewrites calls must see an op of torch.library: a compiler, a mode, a transform such as vmap, a
# class of tensors of its own. Such a tensor may have no memory at all.
modes = torch._C._len_torch_dispatch_stack
# What a call ends in where its arguments are not what they should be, or nowhere.
MISFITS = (RuntimeError, TypeError, AttributeError, ValueError)


class SlowPath:
    """One op's: past those who watch calls, as an op of torch.library, and through the dispatcher.

    The op's arguments come by position, every one: its tensors, then its scalars.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher, self._traced = dispatcher, traced(dispatcher)
        self._tensors = len(dispatcher.op.tensor_parameters)

    def call(self, arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None, out: Out) -> Any:
        """All of a public call, where there is no short way."""
        if is_compiling() or type(arguments[0]) is not Tensor or modes():
            return self.watched(arguments, backend, contract, out)
        return self.run(arguments, backend, contract, out)

    def run(self, arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None, out: Out) -> Any:
        if transforms() is not None or any(map(dispatches_itself, arguments[: self._tensors])):
            return self.watched(arguments, backend, contract, out)
        return self.dispatcher.run(*self._parts(arguments), backend, contract, out)

    def watched(self, arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None, out: Out) -> Any:
        given, scalars = self._parts(arguments)
        first, op = given[0], self.dispatcher.op
        if not isinstance(first, Tensor):  # which the dispatcher says
            return self.dispatcher.run(given, scalars, backend, contract, out)
        if out is not None:
            self.dispatcher.check_out(first, given, out)
        trains = any_trains(given)
        if not is_compiling() and transforms() is None and trains:
            return self.dispatcher.run(given, scalars, backend, contract, out)
        block, strict = wish_of_blocks(is_dynamo_compiling()) if is_compiling() else NOTHING
        if trains and is_compiling():
            check_reference_alone(op.name, backend or block, strict, "an input needs a gradient")
        # Traced as what it is: torch knows its gradient. What is changed in place has no other way through a transform.
        if trains or (op.inplace and not is_compiling() and transforms() is not None):
            return run_reference(op, given, scalars)
        if is_compiling():
            result = self._traced(*given, *scalars.values(), backend or block, contract, strict)
        else:
            result = self._met((*given, *scalars.values()), backend, contract)
        if out is None:
            return result
        check_results(op, result, out)
        if isinstance(out, Tensor):
            return out.copy_(result)
        return tuple(own.copy_(found) for own, found in zip(out, result, strict=True))

    def _met(self, arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None) -> Any:
        """Torch's own words for what no op of its library takes, and a kernel's for what it does not, are not a user's:
        where an argument is wrong, that is said as in every other call."""
        try:
            return self._traced(*arguments, backend, contract, None)
        except MISFITS:
            if (wrong := self.wrong(arguments)) is None:
                raise
            raise wrong from None

    def wrong(self, arguments: tuple[Any, ...], out: Out = None) -> BadArgument | None:
        """The argument that no implementation could take, if it is one."""
        given, scalars = self._parts(arguments)
        try:
            call = self.dispatcher.call(given, scalars)
            self.dispatcher.check(call)
            if out is not None:
                self.dispatcher.check_out(call.first, given, out)
        except BadArgument as wrong:
            return wrong
        return None

    def _parts(self, arguments: tuple[Any, ...]) -> tuple[tuple[Tensor | None, ...], dict[str, Any]]:
        names = self.dispatcher.op.scalar_defaults
        return arguments[: self._tensors], plain(dict(zip(names, arguments[self._tensors :], strict=True)))
