"""The native kernels of the family: which library holds which, and how its functions become implementations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernwright.errors import KernwrightError
from kernwright.ops.native_sources import CPU_HEADERS, CUDA_HEADERS
from kernwright.ops.norm_modulation import exact_native, select_native
from kernwright.runtime.call import BadArgument
from kernwright.runtime.gpu import architecture, gpus_are_alike
from kernwright.runtime.implementation import Launch
from kernwright.runtime.library import Library, Target

_HERE = Path(__file__).parent
_DTYPES = {torch.float32: "kFloat32", torch.float16: "kFloat16", torch.bfloat16: "kBFloat16"}
_WORDS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}

CPU_LIBRARY = Library(
    "norm_modulation", (*(_HERE / name for name in ("cpu_kernel.cc", "arguments.h", "problem.h")), *CPU_HEADERS)
)
CPU = Target("cpu")
# What every library of these kernels is made of, with or without a modulation; each has a host's side of its own.
_KERNEL_HEADERS = ("brief", "held", "lean", "odd", "pivot", "shifted", "small", "statistics", "streamed", "work")
KERNELS = (_HERE / "cuda_kernel.cu", *(_HERE / f"{name}.cuh" for name in _KERNEL_HEADERS))
HOST_HEADERS = tuple(_HERE / name for name in ("arguments.h", "problem.h", "variant.h"))
CUDA_SOURCES = (*KERNELS, *HOST_HEADERS, *CUDA_HEADERS)


def cuda_library(op: str, dtype: torch.dtype) -> Library:
    """One an op and dtype: a first call waits for the kernels that it may need, not for all of them."""
    macros = (("KERNWRIGHT_TYPE", _DTYPES[dtype]), ("KERNWRIGHT_RESIDUAL", str(int(op.startswith("residual")))))
    return Library(f"{op}_{_WORDS[dtype]}", (_HERE / "cuda_host.cc", *CUDA_SOURCES), macros)


def libraries(target: Target) -> list[Library]:
    """All that the family needs on a target."""
    if not target.is_cuda:
        return [CPU_LIBRARY]
    plain = [cuda_library(op, dtype) for op in ("norm_scale_shift", "residual_norm_scale_shift") for dtype in _DTYPES]
    others = (*exact_native.CUDA.values(), *select_native.CUDA.values())
    return plain + [library for own in others for library in own.libraries(target)]


@cache
def _cuda_function(op: str, target: Target, dtype: torch.dtype) -> Launch:
    return getattr(cuda_library(op, dtype).load(target), op)  # type: ignore[no-any-return]


@cache
def _cpu_function(op: str) -> Launch:
    function = getattr(CPU_LIBRARY.load(CPU), op)
    threads = torch.get_num_threads  # asked at each call: torch's own setting holds for these kernels too

    def launch(*arguments: Any) -> bool:
        return function(*arguments, threads())  # type: ignore[no-any-return]

    return launch


def launch(op: str, device: torch.device, dtype: torch.dtype) -> Launch:
    return _cpu_function(op) if device.type == "cpu" else _cuda_function(op, architecture(device), dtype)


def shortcut(op: str, device: torch.device, dtype: torch.dtype) -> Launch | None:
    """For calls whose tensors nobody looks at before: the library refuses another dtype and another kind of device, but
    it cannot tell a GPU of another architecture."""
    return launch(op, device, dtype) if device.type == "cpu" or gpus_are_alike() else None


def function(op: str, outputs: int) -> Callable[..., Any]:
    """The op's own signature over a foreign function: allocates what a call returns, where it is not given."""

    def run(*tensors: Tensor | None, norm_type: str, eps: float, out: Any = None) -> Any:
        x = tensors[0]
        assert x is not None
        outs = outputs_like(x, outputs, out)
        if not launch(op, x.device, x.dtype)(*tensors, norm_type, eps, *outs):
            raise KernwrightError(f"{op}: the kernel refused a call that its requirements took", "please report it")
        return outs[0] if outputs == 1 else outs

    return run


def outputs_like(x: Tensor, count: int, out: Any) -> tuple[Tensor, ...]:
    if out is None:
        return tuple(torch.empty_like(x) for _ in range(count))
    outs = (out,) if isinstance(out, Tensor) else tuple(out)
    for own in outs:
        if own.shape != x.shape or own.dtype != x.dtype:
            raise BadArgument("out", f"is {own.dtype} {list(own.shape)}, x is {x.dtype} {list(x.shape)}")
        if own.shape[-1] > 1 and own.stride(-1) != 1:
            raise BadArgument("out", "has a last axis with gaps")
    return outs
