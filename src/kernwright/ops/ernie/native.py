"""The CUDA kernels of the family: which sources the norms' are made of, and the gate's, which are `modulation`'s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.ops._shared.native_op import NativeOp
from kernwright.ops._shared.native_sources import TOKEN_HEADERS
from kernwright.ops.modulation import native as modulation
from kernwright.runtime.call import Call
from kernwright.runtime.gpu import architecture
from kernwright.runtime.implementation import Launch
from kernwright.runtime.library import Library
from kernwright.runtime.outputs import Promise, from_launch
from kernwright.runtime.target import Target

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


def gate_library_there(call: Call) -> str | None:
    types = modulation.gated_types(call.tensors["update"].dtype, call.first.dtype)
    return modulation.cuda_library(*types).unavailable(architecture(call.first.device))


def gate_shortcut(device: torch.device, dtype: torch.dtype) -> Launch | None:
    return modulation.shortcut(GATE, device, dtype)


def gate_function(op: Op, promise: Promise) -> Callable[..., Any]:
    def launch(tensors: Sequence[Tensor], outs: Sequence[Tensor]) -> Launch:
        residual, update, _ = tensors
        return modulation.launch(GATE, residual.device, *modulation.gated_types(update.dtype, residual.dtype))

    return from_launch(op, promise, launch)
