"""The ways to run ERNIE's ops, and what each asks of a call.

ernie_residual_gate reduces nothing: its kernels have the chain's bits. The norms are close, as the sum over a token may
be taken in any order.
"""

from __future__ import annotations

from functools import partial

from kernwright.core.op import Op
from kernwright.ops._shared.token_requirements import MOST_AXES, rounds_to_nearest, tokens_fit
from kernwright.ops.ernie import definition, native
from kernwright.ops.ernie.arguments import check, promise_of, result_shapes
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.outputs import from_module
from kernwright.runtime.requirements import on_cuda, triton_there

NORMS = (definition.ernie_norm_modulate, definition.ernie_residual_norm_modulate)
GATE = definition.ernie_residual_gate
PROMISES = {op.name: promise_of(op) for op in (*NORMS, GATE)}
TRITON = "kernwright.ops.ernie.triton"


def modulated_tokens_fit(call: Call) -> str | None:
    """What every fused kernel asks of the tensors."""
    first, name = call.first, call.op.activations[0]
    for output, shape in zip(call.op.outputs, result_shapes(call.op, list(call.tensors.values())), strict=True):
        if shape != first.shape:
            return f"{output} is {list(shape)}, {name} is {list(first.shape)}"
    if (update := call.tensors.get("update")) is not None and update.shape != first.shape:
        return f"update is {list(update.shape)}, {name} is {list(first.shape)}"
    if (weight := call.tensors.get("weight")) is not None and weight.shape != first.shape[-1:]:
        return f"weight is {list(weight.shape)}, not {list(first.shape[-1:])}"
    return tokens_fit(call, modulations=("gate", "scale", "shift"), most_axes=MOST_AXES)


def _norm_implementations(op: Op) -> list[Implementation]:
    load = partial(from_module, TRITON, op, PROMISES[op.name])
    return [
        native.NORMS[op.name].implementation(op, PROMISES[op.name], modulated_tokens_fit),
        Implementation("triton", "close", load, (triton_there, modulated_tokens_fit)),
    ]


def _gate_implementations(op: Op) -> list[Implementation]:
    cuda, triton = (
        partial(native.gate_function, op, PROMISES[op.name]),
        partial(from_module, TRITON, op, PROMISES[op.name]),
    )
    ours = (on_cuda, modulated_tokens_fit, native.gate_library_there)
    return [
        Implementation("cuda", "exact", cuda, ours, native.gate_shortcut),
        Implementation("triton", "exact", triton, (triton_there, modulated_tokens_fit, rounds_to_nearest)),
    ]


DISPATCHERS = {op.name: Dispatcher(op, _norm_implementations(op), check) for op in NORMS} | {
    GATE.name: Dispatcher(GATE, _gate_implementations(GATE), check)
}
