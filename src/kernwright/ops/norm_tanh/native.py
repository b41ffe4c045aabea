"""The CUDA kernels of the family: which sources they are made of."""

from __future__ import annotations

from pathlib import Path

from kernwright.ops._shared.native_op import NativeOp
from kernwright.ops._shared.native_sources import TOKEN_HEADERS
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target

_HERE = Path(__file__).parent
_SOURCES = (
    *(_HERE / name for name in ("cuda_host.cc", "cuda_kernel.cu", "arguments.h", "problem.h")),
    *TOKEN_HEADERS,
)
CUDA = {
    "norm_tanh_mul_add": NativeOp("norm_tanh_mul_add", _SOURCES, (("KERNWRIGHT_TWICE", "0"),)),
    "norm_tanh_mul_add_norm_scale": NativeOp("norm_tanh_mul_add_norm_scale", _SOURCES, (("KERNWRIGHT_TWICE", "1"),)),
}


def libraries(target: Target) -> list[Library]:
    return [library for own in CUDA.values() for library in own.libraries(target)]
