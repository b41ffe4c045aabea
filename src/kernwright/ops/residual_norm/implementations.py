"""The ways to run the norms behind a residual, and what each asks of a call.

CUDA and Triton take the same forms; in CUDA a sum of x and a residual in one dtype has kernels of its own, which the
foreign function chooses. No implementation is exact: the order in which torch sums a row is no part of its interface.
On a CPU the reference runs.
"""

from __future__ import annotations

from functools import partial

from kernwright.core.op import Op
from kernwright.ops.plain_norm.implementations import rows_fit
from kernwright.ops.residual_norm import definition, native
from kernwright.ops.residual_norm.arguments import check, promise, spelled
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.outputs import from_module, like_first
from kernwright.runtime.requirements import triton_there

OPS = (definition.add_norm, definition.fused_add_rms_norm_)
PROMISES = {"add_norm": promise, "fused_add_rms_norm_": like_first(definition.fused_add_rms_norm_)}


def summed_rows_fit(call: Call) -> str | None:
    """What every fused kernel asks of the tensors."""
    return rows_fit(call, numbers=("row_scale",))


def _implementations(op: Op) -> list[Implementation]:
    triton = partial(from_module, "kernwright.ops.residual_norm.triton", op, PROMISES[op.name])
    return [
        native.CUDA[op.name].implementation(op, PROMISES[op.name], summed_rows_fit),
        Implementation("triton", "close", triton, (triton_there, summed_rows_fit)),
    ]


SPELLED = {"add_norm": spelled}
DISPATCHERS = {op.name: Dispatcher(op, _implementations(op), check, SPELLED.get(op.name)) for op in OPS}
