"""The native kernels of the family: one library for each dtype of x and of the result, which holds all three ops, and
ERNIE's gate beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.ops._shared.native_op import TYPES, WORDS
from kernwright.ops._shared.native_sources import CUDA_HEADERS
from kernwright.ops.modulation.arguments import taken_in_order
from kernwright.runtime.gpu import architecture, gpus_are_alike
from kernwright.runtime.implementation import Launch
from kernwright.runtime.library import Library
from kernwright.runtime.outputs import Promise, from_launch
from kernwright.runtime.target import Target

_HERE = Path(__file__).parent
_FILES = ("cuda_host.cc", "cuda_kernel.cu", "flat.cuh", "flat.h", "arguments.h", "problem.h", "variant.h")


def is_compiled(x: torch.dtype, result: torch.dtype) -> bool:
    return x in TYPES and result in (x, torch.float32)


def gated_types(update: torch.dtype, residual: torch.dtype) -> tuple[torch.dtype, torch.dtype]:
    """Of x and of the result, in the library that takes both. A half-width residual has that of its own dtype."""
    return (update, residual) if is_compiled(update, residual) else (residual, residual)


def cuda_library(x: torch.dtype, result: torch.dtype) -> Library:
    name = f"modulation_{WORDS[x]}" if x == result else f"modulation_{WORDS[x]}_{WORDS[result]}"
    macros = (("KERNWRIGHT_TYPE", TYPES[x]), ("KERNWRIGHT_RESULT", TYPES[result]))
    return Library(name, (*(_HERE / file for file in _FILES), *CUDA_HEADERS), macros)


def libraries(target: Target) -> list[Library]:
    """All that the family needs on a target; on a CPU its references run."""
    pairs = [(x, result) for x in TYPES for result in TYPES if is_compiled(x, result)]
    return [cuda_library(*pair) for pair in pairs] if target.is_cuda else []


_loaded: dict[tuple[str, torch.device, torch.dtype, torch.dtype], Launch] = {}


def launch(op: str, device: torch.device, x: torch.dtype, result: torch.dtype) -> Launch:
    key = (op, device, x, result)
    if key not in _loaded:
        _loaded[key] = getattr(cuda_library(x, result).load(architecture(device)), op)
    return _loaded[key]


def shortcut(op: str, device: torch.device, dtype: torch.dtype) -> Launch | None:
    """For calls whose tensors nobody looks at before: the library refuses other dtypes and another kind of device, but
    it cannot tell a GPU of another architecture.

    The dtype is the first tensor's. Where a call mixed dtypes it ran another library: none is built for this.
    """
    return _loaded.get((op, device, dtype, dtype)) if gpus_are_alike() else None


def function(op: Op, promise: Promise) -> Callable[..., Any]:
    def found(tensors: Sequence[Tensor], outs: Sequence[Tensor]) -> Launch:
        # Of a sum the kernel picks x itself; it has the result's dtype.
        result = outs[0].dtype
        types = gated_types(tensors[1].dtype, result) if op.name == "residual_gate" else (result, result)
        return launch(op.name, outs[0].device, *types)

    return from_launch(op, promise, found, taken_in_order)
