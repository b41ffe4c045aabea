"""The ways to run norm_tanh_mul_add and norm_tanh_mul_add_norm_scale, and what each asks of a call.

No implementation is exact: the order in which torch sums a token, and its tanh, are no part of its interface.
"""

from __future__ import annotations

from functools import partial

from kernwright.core.op import Op
from kernwright.ops._shared.token_requirements import MOST_AXES, tokens_fit
from kernwright.ops.norm_tanh import definition, native
from kernwright.ops.norm_tanh.arguments import MODULATIONS, check
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.outputs import from_module, like_first
from kernwright.runtime.requirements import triton_there

OPS = (definition.norm_tanh_mul_add, definition.norm_tanh_mul_add_norm_scale)
PROMISES = {op.name: like_first(op) for op in OPS}


def gated_tokens_fit(call: Call) -> str | None:
    """What every fused kernel asks of the tensors."""
    return tokens_fit(call, modulations=MODULATIONS, most_axes=MOST_AXES)


def _implementations(op: Op) -> list[Implementation]:
    load = partial(from_module, "kernwright.ops.norm_tanh.triton", op, PROMISES[op.name])
    return [
        native.CUDA[op.name].implementation(op, PROMISES[op.name], gated_tokens_fit),
        Implementation("triton", "close", load, (triton_there, gated_tokens_fit)),
    ]


DISPATCHERS = {op.name: Dispatcher(op, _implementations(op), check) for op in OPS}
