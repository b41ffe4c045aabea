"""What an op's public function does with its arguments: the short way, straight to a foreign function that is known to
fit, and the long way for all else.

A small kernel takes 2 us and its launch several, so what stands before the launch is counted: no binding of signatures,
no look at shapes, and no function where its frame can be saved. The foreign function checks the tensors itself, and
answers whether it took them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import torch
from torch import Tensor, empty_like
from torch.autograd import forward_ad

from kernwright.core.op import Contract
from kernwright.runtime.dispatch import Out
from kernwright.runtime.outputs import has_memory, may_overlap, written
from kernwright.runtime.preference import Backend, left_by_traces, preferences, preferred
from kernwright.runtime.slow_path import MISFITS, SlowPath, modes

Result = TypeVar("Result")
# The op's arguments by position, tensors and then scalars; and what every public call takes besides.
PublicCall = Callable[[tuple[Any, ...], Backend | None, Contract | None, Out], Result]
is_grad_enabled = torch.is_grad_enabled
is_traced = torch.compiler.is_dynamo_compiling  # every other compiler's tensors are of another class, or in a mode


def public_call(
    otherwise: SlowPath, made: Callable[[tuple[Any, ...]], tuple[Tensor, ...]] | None = None
) -> PublicCall[Result]:
    """Of the op whose long way it is. `made` makes its results of its arguments; none: one or two like the first."""
    dispatcher, op = otherwise.dispatcher, otherwise.dispatcher.op
    tensors, results = len(op.tensor_parameters), len(op.outputs)
    names = [parameter.name for parameter in op.tensor_parameters]
    are_activations = [name in op.activations for name in names]
    changed = itemgetter(*map(names.index, op.inplace)) if op.inplace else None
    is_one_like_first = results == 1 and made is None

    def every(arguments: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
        return (*arguments[:tensors], *(out if isinstance(out, (tuple, list)) else (out,)))

    def run(arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None, out: Out) -> Any:
        first = arguments[0]
        if is_traced() or type(first) is not Tensor or modes():
            return otherwise.watched(arguments, backend, contract, out)
        # As `Dispatcher.latest` has it, in no frame of its own; nor is `preferred` asked where nobody prefers anything.
        own, launch, contracts = dispatcher._latest
        wanted = backend or ((preferences or left_by_traces) and preferred())
        if contract in contracts and (not wanted or wanted == own) and forward_ad._current_level < 0:
            try:
                for tensor in (
                    () if not is_grad_enabled() else arguments[:tensors] if out is None else every(arguments, out)
                ):
                    if tensor is not None and tensor.requires_grad:
                        break  # what trains is the reference's
                else:
                    if out is not None and may_overlap(arguments[:tensors], are_activations, out):
                        return otherwise.run(arguments, backend, contract, out)  # which looks closely
                    if is_one_like_first:
                        y = empty_like(first) if out is None else out
                        if launch(*(arguments + (y,))):  # noqa: RUF005 - the other way makes a list first
                            return y if out is None or not is_grad_enabled() else written(y)  # type: ignore[type-var]
                        del y  # nobody's, and memory that the long way may need
                    else:
                        if out is not None:
                            outs = as_outputs(out, results)
                        elif made is not None:
                            outs = made(arguments)
                        else:
                            outs = (empty_like(first), empty_like(first)) if results else ()
                        if launch(*(arguments + outs)):
                            if (out is not None or changed is not None) and is_grad_enabled():
                                written(outs if changed is None else changed(arguments))
                            return outs[0] if results == 1 else outs or None
                        del outs
            except MISFITS as misfit:
                if not goes_on(misfit, every(arguments, out)) and otherwise.wrong(arguments, out) is None:
                    raise
        return otherwise.run(arguments, backend, contract, out)

    return run


def as_outputs(out: Any, count: int) -> tuple[Tensor, ...]:
    """What was given for so many results, each in memory of its own. Where it is not so, the long way says it."""
    if count == 1:
        return (out,)
    # A tensor can be unpacked as well, into its parts: that is no list of outputs.
    if not isinstance(out, (tuple, list)) or len(out) != count or len({own.data_ptr() for own in out}) < count:
        raise TypeError("out")
    return tuple(out)


def goes_on(misfit: Exception, tensors: Sequence[Any]) -> bool:
    """Whether the long way is asked after all: it names what is wrong in words of its own, the same in every call, and
    where nothing is, it comes to the foreign function's own error. What went wrong at a launch is not done again."""
    if not isinstance(misfit, RuntimeError):
        return True
    # What no foreign function can be given is found out by its error, since to ask before every call would cost.
    return not all(has_memory(own) for own in tensors if isinstance(own, Tensor))
