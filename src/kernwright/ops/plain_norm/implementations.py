"""The ways to run layer_norm and rms_norm, and what each asks of a call.

No implementation is exact: the order in which torch sums a row is no part of its interface. On a CPU torch's own norms,
which are fused there, are what runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kernwright.ops.definition import Op
from kernwright.ops.norm_modulation.native import outputs_like
from kernwright.ops.plain_norm import definition, native
from kernwright.ops.plain_norm.arguments import check
from kernwright.ops.token_requirements import DTYPES, WIDEST
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.gpu import architecture
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.requirements import on_cuda, triton_there

MOST_AXES = 15  # before the last one


def rows_fit(call: Call) -> str | None:
    """What every fused kernel asks of the tensors."""
    x = call.first
    if x.ndim > MOST_AXES + 1:
        return f"x has {x.ndim} dimensions, over {MOST_AXES + 1}"
    if x.shape[-1] > WIDEST:
        return f"x is {x.shape[-1]} wide, over {WIDEST}"
    for name, tensor in call.tensors.items():
        if tensor.dtype not in DTYPES:
            return f"{name} is {tensor.dtype}"
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            return f"{name} has a last axis with gaps"
    return None


def cuda_library_there(call: Call) -> str | None:
    return native.cuda_library(call.first.dtype).unavailable(architecture(call.first.device))


def _triton(name: str) -> Callable[..., Any]:
    from kernwright.ops.plain_norm import triton_kernel

    own = getattr(triton_kernel, name)

    def run(*arguments: Any, out: Any = None, **scalars: Any) -> Any:
        (y,) = outputs_like(arguments[0], 1, out)
        return own(*arguments, **scalars, out=y)

    return run


def _implementations(op: Op) -> list[Implementation]:
    load, launch = partial(native.function, op.name), partial(native.shortcut, op.name)
    return [
        Implementation("cuda", "close", load, (on_cuda, rows_fit, cuda_library_there), launch),
        Implementation("triton", "close", partial(_triton, op.name), (triton_there, rows_fit)),
    ]


DISPATCHERS = {
    op.name: Dispatcher(op, _implementations(op), check) for op in (definition.layer_norm, definition.rms_norm)
}
