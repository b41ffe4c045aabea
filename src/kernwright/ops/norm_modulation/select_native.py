"""The CUDA kernels of the pair with a choice: which sources they are made of."""

from __future__ import annotations

from pathlib import Path

from kernwright.ops._shared.native_op import NativeOp
from kernwright.ops._shared.native_sources import TOKEN_HEADERS

_HERE = Path(__file__).parent
_SOURCES = (
    *(_HERE / name for name in ("select_host.cc", "select_kernel.cu", "select_arguments.h", "select_problem.h")),
    *TOKEN_HEADERS,
)
CUDA = {
    op: NativeOp(op, _SOURCES, (("KERNWRIGHT_RESIDUAL", str(int(op.startswith("residual")))),))
    for op in ("norm_scale_shift_select", "residual_norm_scale_shift_select")
}
