"""The CUDA kernels of the family: those of norm_modulation, compiled without a modulation, behind own checks; for RMS
norms of narrow rows an own one. On a CPU torch's own norms are what runs."""

from __future__ import annotations

from pathlib import Path

from kernwright.ops._shared.native_op import NativeOp
from kernwright.ops.norm_modulation import native as kernels
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target

_HERE = Path(__file__).parent
_OWN = tuple(_HERE / name for name in ("norm_host.cc", "narrow_rows.cu", "narrow_rows.h", "rows.h"))
_MACROS = (("KERNWRIGHT_RESIDUAL", "0"), ("KERNWRIGHT_MODULATED", "0"))
# One library for both norms: which of them it is costs a kernel one branch that all threads agree on.
CUDA = {
    op: NativeOp(op, (*_OWN, *kernels.CUDA_SOURCES), _MACROS, shared="plain_norm") for op in ("layer_norm", "rms_norm")
}


def libraries(target: Target) -> list[Library]:
    return CUDA["rms_norm"].libraries(target)
