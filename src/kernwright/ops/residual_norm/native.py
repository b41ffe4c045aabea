"""The CUDA kernels of the family: for a sum of x and a residual in one dtype those of residual_norm_scale_shift,
compiled without gate and modulation, some in shapes of their own, behind own checks; for every other form own ones. On
a CPU the references are what runs."""

from __future__ import annotations

from pathlib import Path

from kernwright.ops._shared.native_op import NativeOp
from kernwright.ops._shared.native_sources import TOKEN_HEADERS
from kernwright.ops.norm_modulation import native as kernels
from kernwright.ops.plain_norm import native as rows
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target

_HERE = Path(__file__).parent
HEADERS = (_HERE / "sums.h", _HERE / "sum_variant.h", Path(rows.__file__).with_name("rows.h"), *kernels.HOST_HEADERS)
GENERAL_HEADERS = tuple(_HERE / name for name in ("general_arguments.h", "general_problem.h"))
GENERAL = (*(_HERE / name for name in ("general_host.cc", "general_kernel.cu")), *GENERAL_HEADERS, *TOKEN_HEADERS)
SUMS = (_HERE / "sum_kernel.cu", *(own for own in kernels.KERNELS if own.suffix == ".cuh"), *HEADERS, *TOKEN_HEADERS)
_SOURCES = (*(_HERE / name for name in ("sum_host.cc", "sum_kernel.cu")), *kernels.KERNELS, *HEADERS, *GENERAL)
# In place what is read is written, so nothing is read as constant.
_MACROS = (("KERNWRIGHT_RESIDUAL", "1"), ("KERNWRIGHT_MODULATED", "0"), ("KERNWRIGHT_IN_PLACE", "1"))
# One library for both ops, both norms and all forms: one foreign function tells them apart.
CUDA = {op: NativeOp(op, _SOURCES, _MACROS, shared="residual_norm") for op in ("add_norm", "fused_add_rms_norm_")}


def libraries(target: Target) -> list[Library]:
    return CUDA["add_norm"].libraries(target)
