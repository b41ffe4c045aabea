"""The ways to run norm_scale_shift and residual_norm_scale_shift, and what each asks of a call.

No implementation is exact. The order in which torch sums a token differs between its CPU and its CUDA kernels and is no
part of its interface, so equal bits could be shown only on the device they are for: `contract="exact"` runs the eager
chain.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernwright.ops.definition import Op
from kernwright.ops.norm_modulation import definition, native
from kernwright.ops.norm_modulation.arguments import check
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.gpu import architecture
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.requirements import on_cpu, on_cuda, triton_there

WIDEST = 65536
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def tokens_fit(call: Call) -> str | None:
    """What every fused kernel asks of the tensors."""
    x = call.first
    if x.ndim not in (2, 3):
        return f"x has {x.ndim} dimensions, not [B, S, D] or [S, D]"
    if x.shape[-1] > WIDEST:
        return f"x is {x.shape[-1]} wide, over {WIDEST}"
    for name, tensor in call.tensors.items():
        if tensor.dtype not in DTYPES:
            return f"{name} is {tensor.dtype}"
        last = tensor.stride(-1) if tensor.ndim and tensor.shape[-1] > 1 else 1
        # A modulation whose one number was expanded to a row has step 0, and is read as one number.
        if last != 1 and not (last == 0 and name in ("scale", "shift", "gate")):
            return f"{name} has a last axis with gaps"
    residual = call.tensors.get("residual")
    if residual is not None and residual.dtype != x.dtype:
        return f"residual is {residual.dtype}, x is {x.dtype}"
    return None


def cuda_library_there(call: Call) -> str | None:
    target = architecture(call.first.device)
    return native.cuda_library(call.op.name, call.first.dtype).unavailable(target)


def cpu_library_there(call: Call) -> str | None:
    return native.CPU_LIBRARY.unavailable(native.CPU)


def _triton(name: str) -> Callable[..., Any]:
    from kernwright.ops.norm_modulation import triton_kernel

    own = getattr(triton_kernel, name)
    outputs = 2 if name.startswith("residual") else 1

    def run(*arguments: Any, out: Any = None, **scalars: Any) -> Any:
        outs = native.outputs_like(arguments[0], outputs, out)
        return own(*arguments, **scalars, out=outs[0] if outputs == 1 else outs)

    return run


def _implementations(op: Op) -> list[Implementation]:
    load = partial(native.function, op.name, len(op.outputs))
    launch = partial(native.shortcut, op.name)
    return [
        Implementation("cuda", "close", load, (on_cuda, tokens_fit, cuda_library_there), launch),
        Implementation("cpu", "close", load, (on_cpu, tokens_fit, cpu_library_there), launch),
        Implementation("triton", "close", partial(_triton, op.name), (triton_there, tokens_fit)),
    ]


DISPATCHERS = {
    op.name: Dispatcher(op, _implementations(op), check)
    for op in (definition.norm_scale_shift, definition.residual_norm_scale_shift)
}
