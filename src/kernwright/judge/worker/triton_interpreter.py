"""Triton's interpreter, with the rounding of a GPU.

The interpreter truncates to bfloat16, but every GPU rounds to nearest. Half of all numbers would differ in the last
place, and an honest kernel would be incorrect on a CPU.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

_LOWER = 16  # low bits of a float32 that bfloat16 does not have
_QUIET = 0x40  # bit that keeps a bfloat16 NaN a NaN


@functools.cache  # once per worker, which may load several functions
def round_to_nearest() -> None:
    """Make the interpreter round like a GPU. Call this before interpreted kernels run."""
    import triton.language as tl
    from triton._C.libtriton import ir
    from triton.runtime import interpreter

    theirs = interpreter._convert_float

    def convert(values: Any, given: Any, wanted: Any, mode: Any) -> Any:
        if (given, wanted) == (tl.float32, tl.bfloat16) and mode in (None, ir.ROUNDING_MODE.RTNE):
            return nearest_bfloat16(values)
        return theirs(values, given, wanted, mode)

    interpreter._convert_float = convert


def nearest_bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return float32 numbers as bfloat16 bits, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    upper = bits >> _LOWER
    rounded = (bits.astype(np.uint64) + (2 ** (_LOWER - 1) - 1) + (upper & 1)) >> _LOWER
    is_number = (bits & 0x7FFF_FFFF) <= 0x7F80_0000
    return np.where(is_number, rounded, upper | _QUIET).astype(np.uint16)
