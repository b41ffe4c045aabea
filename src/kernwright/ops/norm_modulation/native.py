"""The native kernels of the family: which library holds which, and how its functions become implementations."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from kernwright.core.op import Op
from kernwright.ops._shared.native_op import NativeOp
from kernwright.ops._shared.native_sources import CPU_HEADERS, CUDA_HEADERS
from kernwright.ops.norm_modulation import exact_native, select_native
from kernwright.runtime.call import Call
from kernwright.runtime.implementation import Implementation, Launch, Requirement
from kernwright.runtime.library import Library
from kernwright.runtime.outputs import Promise, from_launch
from kernwright.runtime.requirements import on_cpu
from kernwright.runtime.target import Target

_HERE = Path(__file__).parent

CPU_LIBRARY = Library(
    "norm_modulation", (*(_HERE / name for name in ("cpu_kernel.cc", "arguments.h", "problem.h")), *CPU_HEADERS)
)
CPU = Target("cpu")
# What every library of these kernels is made of, with or without a modulation; each has a host's side of its own.
_KERNEL_HEADERS = (
    "brief", "held", "lean", "odd", "pivot", "shared_rows", "shifted", "small", "statistics", "streamed", "work",
)  # fmt: skip
KERNELS = (_HERE / "cuda_kernel.cu", *(_HERE / f"{name}.cuh" for name in _KERNEL_HEADERS))
HOST_HEADERS = tuple(_HERE / name for name in ("arguments.h", "problem.h", "variant.h"))
CUDA_SOURCES = (*KERNELS, *HOST_HEADERS, *CUDA_HEADERS)


# One library an op and dtype: a first call waits for the kernels that it may need, not for all of them.
CUDA = {
    op: NativeOp(op, (_HERE / "cuda_host.cc", *CUDA_SOURCES), (("KERNWRIGHT_RESIDUAL", residual),))
    for op, residual in (("norm_scale_shift", "0"), ("residual_norm_scale_shift", "1"))
}


def cuda_library(op: str, dtype: torch.dtype) -> Library:
    return CUDA[op].library(dtype)


def libraries(target: Target) -> list[Library]:
    """All that the family needs on a target."""
    if not target.is_cuda:
        return [CPU_LIBRARY]
    ops = (*CUDA.values(), *exact_native.CUDA.values(), *select_native.CUDA.values())
    return [library for own in ops for library in own.libraries(target)]


@cache
def _cpu_launch(op: str) -> Launch:
    function = getattr(CPU_LIBRARY.load(CPU), op)
    threads = torch.get_num_threads  # asked at each call: torch's own setting holds for these kernels too

    def launch(*arguments: Any) -> bool:
        return function(*arguments, threads())  # type: ignore[no-any-return]

    return launch


def launch(op: str, device: torch.device, dtype: torch.dtype) -> Launch:
    return _cpu_launch(op) if device.type == "cpu" else CUDA[op].launch(device, dtype)


def cpu_library_there(call: Call) -> str | None:
    return CPU_LIBRARY.unavailable(CPU)


def cpu_implementation(op: Op, promise: Promise, *requires: Requirement) -> Implementation:
    load = partial(from_launch, op, promise, lambda *_: _cpu_launch(op.name))
    return Implementation("cpu", "close", load, (on_cpu, *requires, cpu_library_there), lambda *_: _cpu_launch(op.name))
