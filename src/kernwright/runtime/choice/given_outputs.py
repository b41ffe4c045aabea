"""Given outputs: the check of tensors that a caller passes as `out=`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kernwright.core.op import Op
from kernwright.runtime.call import BadArgument, any_trains, refuse_strange
from kernwright.runtime.outputs import overlaps, refuse_piled, share_memory

Out = Tensor | Sequence[Tensor] | None


def check_out(op: Op, first: Tensor, tensors: Sequence[Tensor | None], out: Out) -> None:
    """Raise BadArgument for outputs that no implementation could write.

    Dtypes and shapes are checked later, against the results: see `check_results`.
    """
    if not isinstance(out, Tensor | tuple | list):
        raise BadArgument("out", f"is a {type(out).__name__}, not a tensor or a list of them")
    given = listed(out)
    if len(given) != len(op.outputs):
        raise BadArgument("out", f"has {len(given)} tensor(s), {op.name} gives {len(op.outputs)}")
    if any_trains(tensors):
        raise BadArgument("out", "cannot be written where an input needs a gradient")
    if any_trains(given):
        raise BadArgument("out", "needs a gradient, and cannot be written", "pass its detach()")
    for number, (name, tensor) in enumerate(zip(op.outputs, given, strict=True)):
        if not isinstance(tensor, Tensor):
            raise BadArgument("out", f"{name} is a {type(tensor).__name__}, not a tensor")
        refuse_strange("out", tensor, name)
        if tensor.is_quantized:
            raise BadArgument("out", f"{name} is {tensor.dtype}, which no result has")
        if tensor.device != first.device:
            raise BadArgument("out", f"{name} is on {tensor.device}, the inputs are on {first.device}")
        refuse_piled("out", tensor, name)
        for twin, other in zip(op.outputs[:number], given, strict=False):
            if other is tensor or share_memory(other, tensor):
                what = "is the same tensor as" if other is tensor else "shares memory with"
                raise BadArgument("out", f"{name} {what} {twin}", "pass one for each")
        for parameter, own in zip(op.tensor_parameters, tensors, strict=True):
            if isinstance(own, Tensor) and overlaps(op, parameter.name, own, tensor):
                raise BadArgument("out", f"{name} overlaps {parameter.name}", "pass memory of its own")


def check_results(op: Op, result: Out, out: Out) -> None:
    """Raise BadArgument if an output differs from its result in dtype or shape: a copy would convert or broadcast."""
    for name, own, given in zip(op.outputs, listed(result), listed(out), strict=True):
        if (own.dtype, own.shape) != (given.dtype, given.shape):
            raise BadArgument("out", f"{name} is {_described(given)}, not {_described(own)}")


def listed(tensors: Out) -> list[Tensor]:
    """Return one tensor, several or none as a list."""
    return [tensors] if isinstance(tensors, Tensor) else list(tensors or ())


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
