"""The fast path of a public call: it calls the foreign function of the last call directly.

Every other call takes the slow path. A small kernel takes 2 us and its launch several, so every step before the launch
counts: no signature is bound, no shape is read, and no function is called where its frame can be avoided. The foreign
function checks the tensors itself and returns whether it took them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, empty_like
from torch.autograd import forward_ad

from kernwright.core.op import Contract
from kernwright.runtime.choice.given_outputs import Out
from kernwright.runtime.outputs import Allocate, has_memory, may_overlap, written
from kernwright.runtime.preference import Backend, active, preferred
from kernwright.runtime.public_call.slow_path import MISFITS, SlowPath, modes

is_grad_enabled = torch.is_grad_enabled
is_traced = torch.compiler.is_dynamo_compiling  # other compilers use tensor subclasses or a mode


def fast_path(slow: SlowPath, allocate: Allocate | None = None) -> Callable[..., Any]:
    """Return `run(arguments, backend, contract, out)`, where `arguments` are all arguments of the op by position.

    `allocate` makes the outputs; without it there are up to two, each like the first tensor.
    """
    dispatcher, op = slow.dispatcher, slow.dispatcher.op
    tensors, results = len(op.tensor_parameters), len(op.outputs)
    names = [parameter.name for parameter in op.tensor_parameters]
    are_activations = [name in op.activations for name in names]
    changed = itemgetter(*map(names.index, op.inplace)) if op.inplace else None
    is_one_like_first = results == 1 and allocate is None

    def every(arguments: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
        return (*arguments[:tensors], *(out if isinstance(out, (tuple, list)) else (out,)))

    def run(arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None, out: Out) -> Any:
        first = arguments[0]
        if is_traced() or type(first) is not Tensor or modes():
            return slow.watched(arguments, backend, contract, out)
        # `Dispatcher.latest` is inlined to save its frame. `preferred` is called only where something may be preferred.
        own, launch, contracts = dispatcher._latest
        wanted = backend or (active and preferred())
        if contract in contracts and (not wanted or wanted == own) and forward_ad._current_level < 0:
            try:
                for tensor in (
                    () if not is_grad_enabled() else arguments[:tensors] if out is None else every(arguments, out)
                ):
                    if tensor is not None and tensor.requires_grad:
                        break  # only the reference has a gradient
                else:
                    if out is not None and may_overlap(arguments[:tensors], are_activations, out):
                        return slow.run(arguments, backend, contract, out)  # compares strides, too
                    if is_one_like_first:
                        y = empty_like(first) if out is None else out
                        if launch(*(arguments + (y,))):  # noqa: RUF005 - the other way makes a list first
                            return y if out is None or not is_grad_enabled() else written(y)  # type: ignore[type-var]
                        del y  # the slow path may need its memory
                    else:
                        if out is not None:
                            outs = as_outputs(out, results)
                        elif allocate is not None:
                            outs = allocate(arguments)
                        else:
                            outs = (empty_like(first), empty_like(first)) if results else ()
                        if launch(*(arguments + outs)):
                            if (out is not None or changed is not None) and is_grad_enabled():
                                written(outs if changed is None else changed(arguments))
                            return outs[0] if results == 1 else outs or None
                        del outs
            except MISFITS as misfit:
                if not goes_on(misfit, every(arguments, out)) and slow.wrong(arguments, out) is None:
                    raise
        return slow.run(arguments, backend, contract, out)

    return run


def as_outputs(out: Any, count: int) -> tuple[Tensor, ...]:
    """Return the given outputs as a tuple. Raise TypeError for a wrong number or shared memory, which the slow path
    explains."""
    if count == 1:
        return (out,)
    # A tensor unpacks into its rows, which are not a list of outputs.
    if not isinstance(out, (tuple, list)) or len(out) != count or len({own.data_ptr() for own in out}) < count:
        raise TypeError("out")
    return tuple(out)


def goes_on(misfit: Exception, tensors: Sequence[Any]) -> bool:
    """Return whether the slow path takes the call after an error.

    It names a wrong argument in the same words for every implementation, and raises the foreign function's own error
    where nothing is wrong. A launch that failed is not repeated.
    """
    if not isinstance(misfit, RuntimeError):
        return True
    # A tensor without memory shows by the error of the foreign function: a check before each call would cost time.
    return not all(has_memory(own) for own in tensors if isinstance(own, Tensor))
