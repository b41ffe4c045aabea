"""The ways to run the family's ops, and what each asks of a call. The pair with a choice has no kernel for a CPU.

The kernels that run by themselves are close. For LayerNorm without weight and bias the first two ops have exact ones
beside them, in CUDA and in Triton, which go through a token in torch's own order. That order differs between torch's
CPU and its CUDA kernels and is no part of its interface, so equal bits can be shown only on the device they are for
(`exactness.py`). Every other norm, the pair with a choice, and a device that does not show it run the eager chain for
`contract="exact"`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernwright.core.op import Op
from kernwright.ops._shared.token_requirements import MOST_AXES, tokens_fit
from kernwright.ops._shared.torch_order import exact_function
from kernwright.ops.norm_modulation import definition, exact_native, native, select_native
from kernwright.ops.norm_modulation.arguments import SETS, check, check_select, chosen_gate_shape, select_promise
from kernwright.ops.norm_modulation.exactness import exact_shortcut, is_chains, is_plain_layer_norm, norms_as_torch
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.outputs import from_module, like_first
from kernwright.runtime.requirements import on_cuda, triton_there

PLAIN = (definition.norm_scale_shift, definition.residual_norm_scale_shift)
SELECT = (definition.norm_scale_shift_select, definition.residual_norm_scale_shift_select)
PROMISES = {op.name: like_first(op) for op in PLAIN} | {op.name: select_promise(op) for op in SELECT}
INDEX_DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def modulated_tokens_fit(call: Call) -> str | None:
    """What every fused kernel asks of the tensors."""
    return tokens_fit(call, modulations=("scale", "shift", "gate"), alike=(), most_axes=MOST_AXES)


def residual_is_alike(call: Call) -> str | None:
    """Native kernels are compiled for one dtype of tokens, Triton's for those at hand."""
    residual, x = call.tensors.get("residual"), call.first
    return None if residual is None or residual.dtype == x.dtype else f"residual is {residual.dtype}, x is {x.dtype}"


def chosen_tokens_fit(call: Call) -> str | None:
    index, x = call.tensors["index"], call.first
    if index.dtype not in INDEX_DTYPES:
        return f"index is {index.dtype}"
    shape = chosen_gate_shape(index, call.tensors["gate0"], call.tensors["gate1"])
    if shape[-1] != x.shape[-1]:
        return f"the chosen gate is {list(shape)}, x is {list(x.shape)}"
    if x.numel() == 0 and shape.numel() != 0:
        return f"the chosen gate is {list(shape)}, and x, {list(x.shape)}, has no tokens"
    return tokens_fit(call, modulations=(*SETS, "residual_gate"), alike=(), indices=("index",))


def _triton(op: Op, module: str = "triton") -> Callable[..., Any]:
    return from_module(f"kernwright.ops.norm_modulation.{module}", op, PROMISES[op.name])


def _exact_implementations(op: Op) -> list[Implementation]:
    """Asked of a device last: what a call is refused for by itself, no device is asked about."""
    cuda, plain = exact_native.CUDA[op.name], (modulated_tokens_fit, is_plain_layer_norm)
    return [
        Implementation(
            "cuda",
            "exact",
            partial(exact_function, op, partial(cuda.function, op, PROMISES[op.name]), is_chains),
            (on_cuda, *plain, residual_is_alike, cuda.library_there, norms_as_torch("cuda")),
            partial(exact_shortcut, op.name),
        ),
        Implementation(
            "triton",
            "exact",
            partial(exact_function, op, partial(_triton, op, "exact_triton"), is_chains),
            (on_cuda, triton_there, *plain, norms_as_torch("triton")),
        ),
    ]


def _implementations(op: Op) -> list[Implementation]:
    promise = PROMISES[op.name]
    return [
        native.CUDA[op.name].implementation(op, promise, modulated_tokens_fit, residual_is_alike),
        native.cpu_implementation(op, promise, modulated_tokens_fit, residual_is_alike),
        Implementation("triton", "close", partial(_triton, op), (triton_there, modulated_tokens_fit)),
        *_exact_implementations(op),
    ]


def _select_implementations(op: Op) -> list[Implementation]:
    return [
        select_native.CUDA[op.name].implementation(op, PROMISES[op.name], chosen_tokens_fit, residual_is_alike),
        Implementation("triton", "close", partial(_triton, op), (triton_there, chosen_tokens_fit)),
    ]


DISPATCHERS = {op.name: Dispatcher(op, _implementations(op), check) for op in PLAIN} | {
    op.name: Dispatcher(op, _select_implementations(op), check_select) for op in SELECT
}
