"""The CUDA kernels with the bits of the eager chain: which sources they are made of. A library an op and dtype."""

from __future__ import annotations

from pathlib import Path

from kernwright.ops._shared.native_op import NativeOp
from kernwright.ops._shared.native_sources import CUDA_HEADERS

_HERE = Path(__file__).parent
_HEADERS = (
    "exact_arguments.h",
    "exact_problem.h",
    "exact_statistics.cuh",
    "exact_variant.h",
    "arguments.h",
    "problem.h",
)
_SOURCES = (*(_HERE / name for name in ("exact_host.cc", "exact_kernel.cu", *_HEADERS)), *CUDA_HEADERS)
CUDA = {
    op: NativeOp(f"{op}_exact", _SOURCES, (("KERNWRIGHT_RESIDUAL", str(int(op.startswith("residual")))),))
    for op in ("norm_scale_shift", "residual_norm_scale_shift")
}
