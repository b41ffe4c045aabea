"""The CUDA kernels of the family: which sources they are made of. The gate's are those of `modulation`, behind own
checks."""

from __future__ import annotations

from pathlib import Path

from kernwright.ops import modulation
from kernwright.ops.native_op import NativeOp
from kernwright.ops.native_sources import CUDA_HEADERS, TOKEN_HEADERS
from kernwright.runtime.library import Library, Target

_HERE, _MODULATION = Path(__file__).parent, Path(modulation.__file__).parent
_NORM = (
    *(_HERE / name for name in ("norm_host.cc", "norm_kernel.cu", "norm_arguments.h", "norm_problem.h")),
    *TOKEN_HEADERS,
)
_GATE = (
    *(_HERE / name for name in ("gate_host.cc", "gate_arguments.h")),
    *(_MODULATION / name for name in ("cuda_kernel.cu", "problem.h", "variant.h")),
    *CUDA_HEADERS,
)
CUDA = {
    "ernie_norm_modulate": NativeOp("ernie_norm_modulate", _NORM, (("KERNWRIGHT_RESIDUAL", "0"),)),
    "ernie_residual_norm_modulate": NativeOp("ernie_residual_norm_modulate", _NORM, (("KERNWRIGHT_RESIDUAL", "1"),)),
    "ernie_residual_gate": NativeOp("ernie_residual_gate", _GATE, (("KERNWRIGHT_RESULT", "KERNWRIGHT_TYPE"),)),
}


def libraries(target: Target) -> list[Library]:
    return [library for own in CUDA.values() for library in own.libraries(target)]
