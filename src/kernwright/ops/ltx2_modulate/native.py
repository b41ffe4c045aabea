"""The CUDA kernels of the family: which sources they are made of. A library an op and dtype, of one source."""

from __future__ import annotations

from pathlib import Path

from kernwright.ops._shared.native_op import NativeOp
from kernwright.ops._shared.native_sources import CUDA_HEADERS
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target

_HERE = Path(__file__).parent
_FILES = ("cuda_host.cc", "cuda_kernel.cu", "arguments.h", "problem.h", "variant.h")
_SOURCES = (*(_HERE / name for name in _FILES), *CUDA_HEADERS)
_FORMS = {
    "rms_modulate": "kOne",
    "dual_modulate": "kTwo",
    "rms_modulate_from_table": "kOneOfTable",
    "dual_modulate_from_table": "kTwoOfTable",
}
CUDA = {op: NativeOp(op, _SOURCES, (("KERNWRIGHT_FORM", form),)) for op, form in _FORMS.items()}


def libraries(target: Target) -> list[Library]:
    return [library for own in CUDA.values() for library in own.libraries(target)]
