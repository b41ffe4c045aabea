"""The ways to run layer_norm and rms_norm, and what each asks of a call.

No implementation is exact: the order in which torch sums a row is no part of its interface. On a CPU torch's own norms,
which are fused there, are what runs.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from kernwright.core.op import Op
from kernwright.ops._shared.token_requirements import DTYPES, WIDEST
from kernwright.ops.plain_norm import definition, native
from kernwright.ops.plain_norm.arguments import check
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.outputs import from_module, like_first
from kernwright.runtime.requirements import triton_there

OPS = (definition.layer_norm, definition.rms_norm)
PROMISES = {op.name: like_first(op) for op in OPS}
MOST_AXES = 15  # before the last one


def rows_fit(call: Call, numbers: Collection[str] = ()) -> str | None:
    """What every fused kernel asks of the tensors; `numbers` are those with one a row, wherever they lie."""
    x = call.first
    if x.ndim > MOST_AXES + 1:
        return f"x has {x.ndim} dimensions, over {MOST_AXES + 1}"
    if x.shape[-1] > WIDEST:
        return f"x is {x.shape[-1]} wide, over {WIDEST}"
    for name, tensor in call.tensors.items():
        if tensor.dtype not in DTYPES:
            return f"{name} is {tensor.dtype}"
        if name not in numbers and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            return f"{name} has a last axis with gaps"
    return None


def _implementations(op: Op) -> list[Implementation]:
    triton = partial(from_module, "kernwright.ops.plain_norm.triton", op, PROMISES[op.name])
    return [
        native.CUDA[op.name].implementation(op, PROMISES[op.name], rows_fit),
        Implementation("triton", "close", triton, (triton_there, rows_fit)),
    ]


DISPATCHERS = {op.name: Dispatcher(op, _implementations(op), check) for op in OPS}
