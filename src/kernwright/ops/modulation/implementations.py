"""The ways to run scale_shift, residual_gate and broadcast_add, and what each asks of a call. All are exact."""

from __future__ import annotations

from functools import partial

import torch

from kernwright.core.op import Op
from kernwright.ops._shared.token_requirements import DTYPES, axes_fit, rounds_to_nearest
from kernwright.ops.modulation import definition, native
from kernwright.ops.modulation.arguments import WIDEST, check, folded_sum, promise_of, taken_in_order
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.gpu import architecture
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.outputs import from_module
from kernwright.runtime.requirements import on_cuda, triton_there

MODULATIONS = ("scale", "shift", "gate")
OPS = (definition.scale_shift, definition.residual_gate, definition.broadcast_add)
PROMISES = {op.name: promise_of(op) for op in OPS}


def tensors_fit(call: Call) -> str | None:
    """What every fused kernel asks of the tensors."""
    for name, tensor in call.tensors.items():
        if tensor.dtype not in DTYPES:
            return f"{name} is {tensor.dtype}"
    return _sum_fits(call) if call.op.name == "broadcast_add" else _tokens_fit(call)


def _tokens_fit(call: Call) -> str | None:
    name = "update" if call.op.name == "residual_gate" else "x"
    x = call.tensors[name]
    if (refusal := axes_fit(x, name)) is not None:
        return refusal
    if x.shape[-1] > WIDEST:
        return f"{name} is {x.shape[-1]} wide, over {WIDEST}"
    for own, tensor in call.tensors.items():
        last = tensor.stride(-1) if tensor.ndim and tensor.shape[-1] > 1 else 1
        # A modulation whose one number was expanded to a row has step 0, and is read as one number.
        if last != 1 and not (last == 0 and own in MODULATIONS):
            return f"{own} has a last axis with gaps"
    residual = call.tensors.get("residual")
    if residual is not None and residual.shape != x.shape:
        return f"residual is {list(residual.shape)}, update is {list(x.shape)}"
    return None


def _sum_fits(call: Call) -> str | None:
    a, b = call.tensors["a"], call.tensors["b"]
    if folded_sum(a, b) is None:
        return (
            f"a, {a.dtype} {list(a.shape)}, and b, {b.dtype} {list(b.shape)}, are no rows of channels in the "
            "result's dtype"
        )
    return None


def cuda_library_there(call: Call) -> str | None:
    x, result = {
        "scale_shift": lambda: (call.first.dtype, call.first.dtype),
        "residual_gate": lambda: native.gated_types(call.tensors["update"].dtype, call.first.dtype),
        "broadcast_add": lambda: (torch.result_type(*call.tensors.values()),) * 2,
    }[call.op.name]()
    return native.cuda_library(x, result).unavailable(architecture(call.first.device))


def _implementations(op: Op) -> list[Implementation]:
    promise = PROMISES[op.name]
    triton = partial(from_module, "kernwright.ops.modulation.triton", op, promise, taken_in_order)
    return [
        Implementation(
            "cuda",
            "exact",
            partial(native.function, op, promise),
            (on_cuda, tensors_fit, cuda_library_there),
            partial(native.shortcut, op.name),
        ),
        Implementation("triton", "exact", triton, (triton_there, tensors_fit, rounds_to_nearest)),
    ]


DISPATCHERS = {op.name: Dispatcher(op, _implementations(op), check) for op in OPS}
