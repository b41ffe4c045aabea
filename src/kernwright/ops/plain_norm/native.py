"""The native kernels of the family: those of norm_modulation, compiled without a modulation, behind own checks; for RMS
norms of narrow rows an own one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernwright.errors import KernwrightError
from kernwright.ops.native_sources import CUDA_HEADERS
from kernwright.ops.norm_modulation import native as shared
from kernwright.runtime.gpu import architecture, gpus_are_alike
from kernwright.runtime.implementation import Launch
from kernwright.runtime.library import Library, Target

_HERE = Path(__file__).parent
_SHARED = (
    *(Path(shared.__file__).with_name(name) for name in ("cuda_kernel.cu", "arguments.h", "problem.h", "variant.h")),
    *CUDA_HEADERS,
)
_OWN = tuple(_HERE / name for name in ("norm_host.cc", "narrow_rows.cu", "narrow_rows.h", "rows.h"))
_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_TYPES = {torch.float32: "kFloat32", torch.float16: "kFloat16", torch.bfloat16: "kBFloat16"}


def cuda_library(dtype: torch.dtype) -> Library:
    """One a dtype, for both norms: which of them it is costs a kernel one branch that all threads agree on."""
    macros = (("KERNWRIGHT_TYPE", _TYPES[dtype]), ("KERNWRIGHT_RESIDUAL", "0"), ("KERNWRIGHT_MODULATED", "0"))
    return Library(f"plain_norm_{_DTYPES[dtype]}", (*_OWN, *_SHARED), macros)


def libraries(target: Target) -> list[Library]:
    """All that the family needs on a target. On a CPU torch's own norms are what runs."""
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

    def run(*tensors: Tensor | None, eps: float, out: Any = None) -> Tensor:
        x = tensors[0]
        assert x is not None
        (y,) = shared.outputs_like(x, 1, out)
        if not launch(op, x.device, x.dtype)(*tensors, eps, y):
            raise KernwrightError(f"{op}: the kernel refused a call that its requirements took", "please report it")
        return y

    return run
