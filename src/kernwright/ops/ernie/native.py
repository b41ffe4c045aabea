"""The CUDA kernels of the family: which sources the norms' are made of, and the gate's, which are `modulation`'s."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernwright.errors import KernwrightError
from kernwright.ops.definition import Op
from kernwright.ops.modulation import native as modulation
from kernwright.ops.native_op import NativeOp
from kernwright.ops.native_sources import TOKEN_HEADERS
from kernwright.runtime.call import Call
from kernwright.runtime.gpu import architecture
from kernwright.runtime.implementation import Launch
from kernwright.runtime.library import Library, Target
from kernwright.runtime.outputs import Promise, given_back, taken

_HERE = Path(__file__).parent
_SOURCES = (
    *(_HERE / name for name in ("norm_host.cc", "norm_kernel.cu", "norm_arguments.h", "norm_problem.h")),
    *TOKEN_HEADERS,
)
NORMS = {
    "ernie_norm_modulate": NativeOp("ernie_norm_modulate", _SOURCES, (("KERNWRIGHT_RESIDUAL", "0"),)),
    "ernie_residual_norm_modulate": NativeOp("ernie_residual_norm_modulate", _SOURCES, (("KERNWRIGHT_RESIDUAL", "1"),)),
}
GATE = "ernie_residual_gate"


def libraries(target: Target) -> list[Library]:
    """The gate's among them: who asks for what this family needs may not ask for `modulation`'s."""
    return [
        *(library for own in NORMS.values() for library in own.libraries(target)),
        *modulation.libraries(target),
    ]


def gate_is_compiled(call: Call) -> str | None:
    residual, update = call.first, call.tensors["update"]
    if not modulation.is_compiled(update.dtype, residual.dtype):
        return f"update is {update.dtype}, residual is {residual.dtype}"
    return modulation.cuda_library(update.dtype, residual.dtype).unavailable(architecture(residual.device))


def gate_shortcut(device: torch.device, dtype: torch.dtype) -> Launch | None:
    return modulation.shortcut(GATE, device, dtype)


def gate_function(op: Op, promise: Promise) -> Callable[..., Any]:
    """The op's own signature over the foreign function: allocates what a call returns, where it is not given."""

    def run(residual: Tensor, update: Tensor, gate: Tensor, *, out: Any = None) -> Any:
        outs = taken(op, promise, (residual, update, gate), out)
        launch = modulation.launch(GATE, residual.device, update.dtype, residual.dtype)
        if not launch(residual, update, gate, *outs):
            raise KernwrightError(f"{GATE}: the kernel refused a call that its requirements took", "please report it")
        return given_back(outs)

    return run
