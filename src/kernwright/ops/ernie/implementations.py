"""The ways to run ERNIE's ops, and what each asks of a call.

ernie_residual_gate reduces nothing: its kernels have the chain's bits. The norms are close, as the sum over a token may
be taken in any order.
"""

from __future__ import annotations

from functools import partial

from kernwright.ops.definition import Op
from kernwright.ops.ernie import definition, native
from kernwright.ops.ernie.arguments import check, promise_of, result_shapes
from kernwright.ops.token_requirements import rounds_to_nearest, tokens_fit
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.outputs import from_module
from kernwright.runtime.requirements import on_cuda, triton_there

NORMS = (definition.ernie_norm_modulate, definition.ernie_residual_norm_modulate)
OPS = (*NORMS, definition.ernie_residual_gate)
PROMISES = {op.name: promise_of(op) for op in OPS}


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
    return tokens_fit(call, modulations=("gate", "scale", "shift"))


def update_is_alike(call: Call) -> str | None:
    """Of the gate's CUDA kernel alone: the norm's takes an update of any dtype."""
    residual, update = call.first, call.tensors["update"]
    return None if update.dtype == residual.dtype else f"update is {update.dtype}, residual is {residual.dtype}"


def _implementations(op: Op) -> list[Implementation]:
    own, promise = native.CUDA[op.name], PROMISES[op.name]
    load = partial(from_module, "kernwright.ops.ernie.triton_kernel", op, promise)
    if op in NORMS:
        return [
            own.implementation(op, promise, modulated_tokens_fit),
            Implementation("triton", "close", load, (triton_there, modulated_tokens_fit)),
        ]
    return [
        Implementation(
            "cuda",
            "exact",
            partial(own.function, op, promise),
            (on_cuda, modulated_tokens_fit, update_is_alike, own.library_there),
            own.shortcut,
        ),
        Implementation("triton", "exact", load, (triton_there, modulated_tokens_fit, rounds_to_nearest)),
    ]


DISPATCHERS = {op.name: Dispatcher(op, _implementations(op), check) for op in OPS}
