"""Triton's interpreter, with the bfloat16 arithmetic of a GPU.

The interpreter truncates to bfloat16, but every GPU rounds to nearest: half of all numbers would differ in the last
place. It also computes with bfloat16 operands as if their bits were integers. An honest kernel would be incorrect on a
CPU for either reason.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_LOWER = 16  # low bits of a float32 that bfloat16 does not have
_QUIET = 0x40  # bit that keeps a bfloat16 NaN a NaN
# The functions with which the interpreter computes. Comparisons are among the binary operations.
_ARITHMETIC = ("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot")


@functools.cache  # once per worker, which may load several functions
def compute_bfloat16_like_gpu() -> None:
    """Make the interpreter round to bfloat16 and compute with it like a GPU. Call this before kernels run."""
    from triton.runtime import interpreter

    interpreter._convert_float = _rounding(interpreter._convert_float)
    builder = interpreter.InterpreterBuilder
    builder.cast_impl = _casting_through_float32(builder.cast_impl)
    for name in _ARITHMETIC:
        setattr(builder, name, _in_float32(getattr(builder, name)))
    scans = interpreter.ReduceScanOpInterface
    scans.apply = _reducing_in_float32(scans.apply)


def _rounding(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the interpreter's conversion: round to nearest where no other mode is asked for, and keep subnormals."""
    import triton.language as tl
    from triton._C.libtriton import ir

    def convert(values: Any, given: Any, wanted: Any, mode: Any) -> Any:
        if (given, wanted) == (tl.float32, tl.bfloat16) and mode in (None, ir.ROUNDING_MODE.RTNE):
            return nearest_bfloat16(values)
        if (given, wanted) == (tl.bfloat16, tl.float32):
            return float32_of(values).view(np.uint32)
        return theirs(values, given, wanted, mode)

    return convert


def _casting_through_float32(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the interpreter's cast, which takes integers, booleans and float64 for the bits of a bfloat16."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def cast(builder: Any, given: Any, wanted: Any) -> Any:
        if wanted.scalar == tl.bfloat16 and (given.dtype.scalar, given.data.dtype) != (tl.bfloat16, np.uint16):
            given = TensorHandle(given.data.astype(np.float32), tl.float32)
        return theirs(builder, given, wanted)

    return cast


def _in_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operation: widen bfloat16 operands, and round the result to the last operand's type."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def widened(own: Any) -> Any:
        if not isinstance(own, TensorHandle) or own.dtype.scalar != tl.bfloat16:
            return own
        return TensorHandle(float32_of(own.data), tl.float32)

    @functools.wraps(operation)
    def run(builder: Any, *operands: Any) -> Any:
        result = operation(builder, *map(widened, operands))
        last = [own for own in operands if isinstance(own, TensorHandle)][-1]
        if last.dtype.scalar != tl.bfloat16:
            return result
        is_comparison = result.data.dtype == np.bool_
        return TensorHandle(_rounded(result.data), tl.int1 if is_comparison else tl.bfloat16)

    return run


def _reducing_in_float32(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap reductions and scans: they add up in float32, and round once at the end."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def typed(own: Any, data: Array, dtype: Any) -> Any:
        return tl.core.tensor(TensorHandle(data, dtype), own.type.with_element_ty(dtype))

    @functools.wraps(apply)
    def run(own: Any, given: Any) -> Any:
        if not isinstance(given, tuple):
            return own.apply((given,))[0]
        is_narrow = [tensor.dtype == tl.bfloat16 for tensor in given]
        wide = (
            typed(tensor, float32_of(tensor.handle.data), tl.float32) if narrow else tensor
            for tensor, narrow in zip(given, is_narrow, strict=True)
        )
        return tuple(
            typed(tensor, _rounded(tensor.handle.data), tl.bfloat16) if narrow else tensor
            for tensor, narrow in zip(apply(own, tuple(wide)), is_narrow, strict=False)
        )

    return run


def _rounded(values: Array) -> Array:
    """Return the result of an operation on bfloat16: comparisons have no numbers to round."""
    return nearest_bfloat16(values) if values.dtype == np.float32 else values


def nearest_bfloat16(values: Array) -> Array:
    """Return float32 numbers as bfloat16 bits, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    upper = bits >> _LOWER
    rounded = (bits.astype(np.uint64) + (2 ** (_LOWER - 1) - 1) + (upper & 1)) >> _LOWER
    is_number = (bits & 0x7FFF_FFFF) <= 0x7F80_0000
    return np.where(is_number, rounded, upper | _QUIET).astype(np.uint16).reshape(np.shape(values))


def float32_of(bits: Array) -> Array:
    """Return bfloat16 bits as the float32 numbers that they stand for."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << _LOWER).view(np.float32).reshape(np.shape(bits))
