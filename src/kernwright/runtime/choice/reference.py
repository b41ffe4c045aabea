"""The reference of an op as an implementation: its definition, with `out=`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.runtime.call import BadArgument, run_reference
from kernwright.runtime.choice.given_outputs import Out, check_results, listed
from kernwright.runtime.outputs import given_back
from kernwright.runtime.preference import BEST


def reference_function(op: Op) -> Callable[..., Any]:
    """Return a function that runs the definition of an op and takes `out=`."""

    def reference(*arguments: Any, out: Out = None, **scalars: Any) -> Any:
        try:
            result = run_reference(op, arguments, scalars)
        except RuntimeError as error:
            if (narrow := _float8_argument(op, arguments, error)) is None:
                raise
            raise narrow from error
        if out is None:
            return result
        check_results(op, result, out)
        with torch.no_grad():
            for own, given in zip(listed(result), listed(out), strict=True):
                given.copy_(own)
        return given_back(listed(out))

    return reference


def check_reference_alone(op: str, backend: str | None, strict: bool | None, why: str) -> None:
    """Raise if anything but the reference was asked for, where only the reference can be a part of a graph.

    The error is a RuntimeError, since torch.compile cannot trace the errors of this package.
    """
    if backend not in (None, BEST, "torch"):
        raise RuntimeError(f"{op} cannot run on {backend}: {why}")
    if strict:
        raise RuntimeError(f"{op} would run its reference: {why}")


def _float8_argument(op: Op, tensors: Sequence[Any], error: RuntimeError) -> BadArgument | None:
    """Return an error that names the first tensor of 8-bit floats, which torch rarely computes with; None if none."""
    for parameter, own in zip(op.tensor_parameters, tensors, strict=False):
        if isinstance(own, Tensor) and own.is_floating_point() and own.itemsize == 1:
            said = str(error).partition("\n")[0]
            return BadArgument(parameter.name, f"is {own.dtype}: {said}", "pass its to(torch.bfloat16)")
    return None
