"""SlowPath: runs a public call when the fast path does not apply."""

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
from kernwright.runtime.choice.given_outputs import Out, check_out, check_results
from kernwright.runtime.choice.reference import check_reference_alone
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.outputs import dispatches_itself
from kernwright.runtime.preference import NOTHING, Backend, wish_of_blocks
from kernwright.runtime.public_call.traced import traced

# The number of active dispatch modes. Such modes, compilers, transforms such as vmap, and tensor subclasses watch or
# rewrite calls, sometimes on tensors without memory. So they get the op of torch.library and not a kernel's function.
modes = torch._C._len_torch_dispatch_stack
# The errors that a foreign function or torch raises for wrong arguments.
MISFITS = (RuntimeError, TypeError, AttributeError, ValueError)


class SlowPath:
    """The slow path of one op: through the dispatcher, or as an op of torch.library where a watcher must see the call.

    Methods take all arguments of the op by position: its tensors, then its scalars.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher, self._traced = dispatcher, traced(dispatcher)
        self._tensors = len(dispatcher.op.tensor_parameters)

    def call(self, arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None, out: Out) -> Any:
        """Run a public call of an op that has no fast path."""
        if is_compiling() or type(arguments[0]) is not Tensor or modes():
            return self.watched(arguments, backend, contract, out)
        return self.run(arguments, backend, contract, out)

    def run(self, arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None, out: Out) -> Any:
        """Run a call whose first tensor is a plain one and which no compiler or mode watches."""
        if transforms() is not None or any(map(dispatches_itself, arguments[: self._tensors])):
            return self.watched(arguments, backend, contract, out)
        return self.dispatcher.run(*self._parts(arguments), backend, contract, out)

    def watched(self, arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None, out: Out) -> Any:
        """Run a call that a compiler, a mode, a transform or a tensor subclass must see as an op of torch.library."""
        given, scalars = self._parts(arguments)
        first, op = given[0], self.dispatcher.op
        if not isinstance(first, Tensor):  # the dispatcher names the argument
            return self.dispatcher.run(given, scalars, backend, contract, out)
        if out is not None:
            check_out(op, first, given, out)
        trains = any_trains(given)
        if not is_compiling() and transforms() is None and trains:
            return self.dispatcher.run(given, scalars, backend, contract, out)
        block, strict = wish_of_blocks(is_dynamo_compiling()) if is_compiling() else NOTHING
        if trains and is_compiling():
            check_reference_alone(op.name, backend or block, strict, "an input needs a gradient")
        # The chain is traced itself, since torch knows its gradient. A transform cannot take an op that works in place.
        if trains or (op.inplace and not is_compiling() and transforms() is not None):
            return run_reference(op, given, scalars)
        if is_compiling():
            result = self._traced(*given, *scalars.values(), backend or block, contract, strict)
        else:
            result = self._call_traced((*given, *scalars.values()), backend, contract)
        if out is None:
            return result
        check_results(op, result, out)
        if isinstance(out, Tensor):
            return out.copy_(result)
        return tuple(own.copy_(found) for own, found in zip(out, result, strict=True))

    def _call_traced(self, arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None) -> Any:
        """Call the op of torch.library. For a wrong argument raise the same BadArgument as every other call does."""
        try:
            return self._traced(*arguments, backend, contract, None)
        except MISFITS:
            if (wrong := self.wrong(arguments)) is None:
                raise
            raise wrong from None

    def wrong(self, arguments: tuple[Any, ...], out: Out = None) -> BadArgument | None:
        """Return the error for an argument that no implementation could take; None if all arguments are valid."""
        given, scalars = self._parts(arguments)
        try:
            call = self.dispatcher.call(given, scalars)
            self.dispatcher.check(call)
            if out is not None:
                check_out(self.dispatcher.op, call.first, given, out)
        except BadArgument as wrong:
            return wrong
        return None

    def _parts(self, arguments: tuple[Any, ...]) -> tuple[tuple[Tensor | None, ...], dict[str, Any]]:
        names = self.dispatcher.op.scalar_defaults
        return arguments[: self._tensors], plain(dict(zip(names, arguments[self._tensors :], strict=True)))
