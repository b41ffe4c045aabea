"""The native kernels of the family: those of residual_norm_scale_shift, compiled without gate and modulation, behind
own checks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernwright.errors import KernwrightError
from kernwright.ops.native_sources import CUDA_HEADERS
from kernwright.ops.norm_modulation import native as kernels
from kernwright.ops.plain_norm import native as rows
from kernwright.runtime.gpu import architecture, gpus_are_alike
from kernwright.runtime.implementation import Launch
from kernwright.runtime.library import Library, Target

_HERE = Path(__file__).parent
HEADERS = (
    _HERE / "sums.h",
    Path(rows.__file__).with_name("rows.h"),
    *(Path(kernels.__file__).with_name(name) for name in ("arguments.h", "problem.h", "variant.h")),
)
_SOURCES = (_HERE / "sum_host.cc", Path(kernels.__file__).with_name("cuda_kernel.cu"), *HEADERS, *CUDA_HEADERS)
_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_TYPES = {torch.float32: "kFloat32", torch.float16: "kFloat16", torch.bfloat16: "kBFloat16"}


def cuda_library(dtype: torch.dtype) -> Library:
    """One a dtype, for both ops and both norms. In place what is read is written, so nothing is read as constant."""
    macros = {"TYPE": _TYPES[dtype], "RESIDUAL": "1", "MODULATED": "0", "IN_PLACE": "1"}
    return Library(
        f"residual_norm_{_DTYPES[dtype]}",
        _SOURCES,
        tuple((f"KERNWRIGHT_{name}", value) for name, value in macros.items()),
    )


def libraries(target: Target) -> list[Library]:
    """All that the family needs on a target. On a CPU the reference is what runs."""
    return [cuda_library(dtype) for dtype in _DTYPES] if target.is_cuda else []


@cache
def _loaded(op: str, target: Target, dtype: torch.dtype) -> Launch:
    return getattr(cuda_library(dtype).load(target), op)  # type: ignore[no-any-return]


def launch(op: str, device: torch.device, dtype: torch.dtype) -> Launch:
    return _loaded(op, architecture(device), dtype)


def shortcut(op: str, device: torch.device, dtype: torch.dtype) -> Launch | None:
    """For calls whose tensors nobody looks at before: the library cannot tell a GPU of another architecture."""
    return launch(op, device, dtype) if gpus_are_alike() else None


def function(op: str) -> Callable[..., Any]:
    """The op's own signature over a foreign function: allocates what a call returns, where it is not given."""

    def run(*tensors: Tensor | None, out: Any = None, **scalars: Any) -> Any:
        x = tensors[0]
        assert x is not None
        outs = kernels.outputs_like(x, 2, out) if op == "add_norm" else ()
        if not launch(op, x.device, x.dtype)(*tensors, *scalars.values(), *outs):
            raise KernwrightError(f"{op}: the kernel refused a call that its requirements took", "please report it")
        return outs or None

    return run
