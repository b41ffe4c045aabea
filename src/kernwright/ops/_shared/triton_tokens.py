"""Shared parts of Triton kernels over tokens: addresses of tokens and modulations, statistics, and a program's
shape."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import triton
import triton.language as tl
from torch import Tensor

from kernwright.ops._shared.modulation_layout import layout
from kernwright.runtime.triton.configurations import HELD as HELD
from kernwright.runtime.triton.tuning import chosen

Tokens = tuple[Tensor, int, int] | None
Rows = tuple[Tensor, int, int, int, int] | None


@dataclass(frozen=True)
class Shape:
    """The layout of a width: tokens per program, columns per piece, and warps."""

    rows: int
    block: int
    warps: int
    held_whole: bool

    @cached_property
    def options(self) -> dict[str, int | bool]:
        """The options of a launch, by the names of the kernels' parameters."""
        return {"ROWS": self.rows, "BLOCK": self.block, "HELD_WHOLE": self.held_whole, "num_warps": self.warps}


def shape_of(op: str, x: Tensor) -> Shape:
    """Return the shape that was measured to be best on this GPU, or the default. It is looked up, never searched
    for."""
    width = x.shape[-1]
    own = chosen(op, width, x.numel(), x.element_size(), x.device)
    return _shape(own.rows, own.block, own.warps, width)


@lru_cache(maxsize=4096)  # a launch is short, and making a shape takes as long as looking it up
def _shape(rows: int, block: int, warps: int, width: int) -> Shape:
    return Shape(rows, block, warps, block >= width)


def steps(tensor: Tensor) -> tuple[int, int]:
    """Return the strides from one batch entry of `[B, S, D]` or `[S, D]` to the next, and from one token to the
    next."""
    return (tensor.stride(0) if tensor.ndim == 3 else 0), tensor.stride(-2)


def tokens_of(tensor: Tensor | None) -> Tokens:
    return None if tensor is None else (tensor, *steps(tensor))


def rows_of(modulation: Tensor | None, x: Tensor) -> Rows:
    if modulation is None:
        return None
    own = layout(modulation, x)
    return modulation, own.batch_step, own.token_step, own.tokens_per_row, own.channel_step


@triton.jit
def places(rows, tokens, ROWS: tl.constexpr):
    """Return this program's tokens: the batch entry of each, its place there, and whether it exists."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    return row // tokens, row % tokens, row < rows


# Tensors that a call lacks are not passed to these two functions: before Triton 3.7, no function that may return None
# compiles.
@triton.jit
def token_start(own, batch, token):
    data, batch_step, token_step = own
    return data + batch * batch_step + token * token_step


@triton.jit
def row_start(own, batch, token):
    """Return where each token's row of a modulation starts, and the stride of its channels."""
    data, batch_step, token_step, tokens_per_row, channel_step = own
    return data + batch * batch_step + token // tokens_per_row * token_step, channel_step


@triton.jit
def widened(values, result=None):
    """Return values in float32. `result` are the tokens to whose dtype a sum with them is rounded.

    LLVM confuses bfloat16 with float16, because it compares mantissas and not exponents: a sum of both that is rounded
    to float16 would be computed in float16. This does not happen if a bfloat16 is widened by its bits.
    """
    wide = values.to(tl.float32)
    if result is not None:  # noqa: SIM102 - Triton may look at every operand of "and"
        if values.dtype == tl.bfloat16 and result.dtype.element_ty == tl.float16:
            wide = (values.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    return wide


@triton.jit
def read(row, column, mask, result=None):
    start, channel_step = row
    return widened(tl.load(start + column * channel_step, mask, 0.0), result)


@triton.jit
def wide(tokens, column, mask, result=None):
    return widened(tl.load(tokens + column, mask, 0.0), result)


@triton.jit
def write(tokens, column, value, mask):
    tl.store(tokens + column, value.to(tokens.dtype.element_ty), mask)


@triton.jit
def affine(normed, weight, bias, column, inside):
    """Return weight and bias. They are the same for every token, so they are read once."""
    if weight is not None:
        normed *= wide(weight, column, inside)
    if bias is not None:
        normed += wide(bias, column, inside)
    return normed


@triton.jit
def held_statistics(value, mask, width, eps, RMS: tl.constexpr):
    """Return the value to subtract from each element, and the factor for the difference, for tokens held whole."""
    mean = tl.zeros([value.shape[0], 1], tl.float32)
    lacking = mean
    if not RMS:
        mean = tl.sum(value, 1, keep_dims=True) / width
        value = tl.where(mask, value - mean, 0.0)
        lacking = tl.sum(value, 1, keep_dims=True) / width
    variance = tl.sum(value * value, 1, keep_dims=True) / width - lacking * lacking
    return mean + lacking, tl.rsqrt(variance + eps)


@triton.jit
def streamed_statistics(
    value_of: tl.constexpr, given, there, width, eps, RMS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the same for tokens in pieces of BLOCK. `value_of(given, column, mask)` is a piece, computed anew in each
    pass and 0 outside its mask."""
    mean = tl.zeros([ROWS, 1], tl.float32)
    if not RMS:
        sums = tl.zeros([ROWS, BLOCK], tl.float32)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            sums += value_of(given, column, there & (column < width))
        mean = tl.sum(sums, 1, keep_dims=True) / width
    squares = tl.zeros([ROWS, BLOCK], tl.float32)
    rests = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        mask = there & (column < width)
        value = tl.where(mask, value_of(given, column, mask) - mean, 0.0)
        squares += value * value
        if not RMS:
            rests += value
    lacking = tl.sum(rests, 1, keep_dims=True) / width
    variance = tl.sum(squares, 1, keep_dims=True) / width - lacking * lacking
    return mean + lacking, tl.rsqrt(variance + eps)
