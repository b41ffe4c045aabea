"""Norms behind a residual in Triton, in every form. They run on a GPU where there is no nvcc.

Contract: close. The sum is taken in float32 and rounded once, to the dtype in which it is returned; its norm is that of
the rounded sum. Statistics in float32, centred before they are squared; then one chain in float32 and one rounding.
Bytes per row: every input read once and both results written once up to a width of 16384; a wider row is read three
times, the second and third time from the cache. A program takes several small rows (512 and below) in one pass.
Share of a copy's bandwidth: not measured yet.

In place x and y are one tensor, and so are the residual and the sum. A piece of a row is read by one program, before
that program writes it, and is not read again afterwards.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernwright.ops._shared.rows import batches
from kernwright.ops._shared.triton_tokens import (
    affine,
    held_statistics,
    places,
    shape_of,
    streamed_statistics,
    token_start,
    tokens_of,
    wide,
    write,
)
from kernwright.runtime.outputs import rows_like


@triton.jit
def _value(given, column, mask):
    """Return the sum, rounded as it is returned and widened again."""
    x, scale, second, residual, total = given
    value = wide(x, column, mask, total)
    if scale is not None:
        value *= scale
    if second is not None:
        value += wide(second, column, mask, total)
    if residual is not None:
        value += wide(residual, column, mask, total)
    return value.to(total.dtype.element_ty).to(tl.float32)


@triton.jit
def _finish(value, mean, inverse, weight, bias, y, total, column, there, width):
    inside = column < width
    mask = there & inside
    write(total, column, value, mask)
    write(y, column, affine((value - mean) * inverse, weight, bias, column, inside), mask)


@triton.jit
def add_norm_rows(
    x, row_scale, second, residual, weight, bias, y, total, rows, tokens, width, eps,
    RMS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, HELD_WHOLE: tl.constexpr,
):  # fmt: skip
    """Process ROWS rows per program. With HELD_WHOLE a row fits BLOCK; otherwise it is processed in pieces of BLOCK."""
    batch, token, there = places(rows, tokens, ROWS)
    to, sums = token_start(y, batch, token), token_start(total, batch, token)
    given = (
        token_start(x, batch, token),
        row_scale if row_scale is None else tl.load(token_start(row_scale, batch, token), there, 0.0).to(tl.float32),
        second if second is None else token_start(second, batch, token),
        residual if residual is None else token_start(residual, batch, token),
        sums,
    )
    if HELD_WHOLE:
        column = tl.arange(0, BLOCK)[None, :]
        mask = there & (column < width)
        value = _value(given, column, mask)
        mean, inverse = held_statistics(value, mask, width, eps, RMS)
        _finish(value, mean, inverse, weight, bias, to, sums, column, there, width)
    else:
        mean, inverse = streamed_statistics(_value, given, there, width, eps, RMS, ROWS, BLOCK)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            value = _value(given, column, there & (column < width))
            _finish(value, mean, inverse, weight, bias, to, sums, column, there, width)


def launch(
    x: Tensor, row_scale: Tensor | None, second: Tensor | None, residual: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, rms: bool, eps: float, y: Tensor, total: Tensor,
) -> None:  # fmt: skip
    """Write the norm to `y` and the sum to `total`, which may be x and residual."""
    width = x.shape[-1]
    shape = shape_of("add_norm", x)
    numbers = None if row_scale is None else row_scale[..., None]
    members = (x, numbers, second, residual, total, y)
    with torch.cuda.device_of(x):
        for views in batches(*(own for own in members if own is not None)):
            found = iter(views)
            own, scale, other, before, sums, to = (None if member is None else next(found) for member in members)
            assert own is not None
            rows = own.shape[0] * own.shape[1]
            add_norm_rows[(triton.cdiv(rows, shape.rows),)](
                tokens_of(own), tokens_of(scale), tokens_of(other), tokens_of(before), weight, bias, tokens_of(to),
                tokens_of(sums), rows, own.shape[1], width, eps, RMS=rms, **shape.options,
            )  # fmt: skip


def add_norm(
    x: Tensor, residual: Tensor | None = None, weight: Tensor | None = None, bias: Tensor | None = None,
    second: Tensor | None = None, row_scale: Tensor | None = None,
    *, norm_type: str = "rms", eps: float = 1e-6, out: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    y, total = out or (rows_like(x), rows_like(x, None if residual is None else residual.dtype))
    launch(x, row_scale, second, residual, weight, bias, norm_type == "rms", eps, y, total)
    return y, total


def fused_add_rms_norm_(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, *, eps: float = 1e-6, out: None = None
) -> None:
    launch(x, None, None, residual, weight, None, True, eps, x, residual)
