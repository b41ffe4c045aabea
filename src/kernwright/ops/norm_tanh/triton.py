"""Norm with a tanh gate in Triton, alone and followed by a second norm and scale. They run on a GPU without nvcc.

Contract: close. Statistics are in float32 and centred before they are squared. One chain in float32 with one rounding
follows, whereas the eager chain rounds after each step. The input of the second norm is y as it is returned.

Bytes per token: x (and a shift per token) is read once and y (and y2) is written once, up to a width of HELD. A wider
token is read up to five times: once from memory, otherwise from the cache. Modulations that tokens share stay there.
Share of a copy's bandwidth: not measured yet.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernwright.ops._shared.folding import folded
from kernwright.ops._shared.triton_tokens import (
    affine,
    held_statistics,
    places,
    read,
    row_start,
    rows_of,
    shape_of,
    streamed_statistics,
    token_start,
    tokens_of,
    wide,
    write,
)
from kernwright.runtime.outputs import rows_like


@triton.jit
def _tanh(value):
    """Return tanh within 2 ulp. Near zero it uses a polynomial that was fitted for the least relative error up to 0.6,
    because the formula for larger values, one minus a fraction, would cancel there. NaN stays NaN."""
    size = tl.abs(value)
    far = 1.0 - 2.0 / (tl.exp(2.0 * size) + 1.0)
    square = value * value
    series = 0.0207959696 - square * 0.00589515557
    series = -0.33333298 + square * (0.133319241 + square * (-0.0537838297 + square * series))
    near = value + value * (square * series)
    return tl.where(size < 0.6, near, tl.where(value < 0.0, -far, far))


@triton.jit
def _gated(value, mean, inverse, gated, column, mask, width):
    """Return norm(x) * tanh(scale) + shift, rounded to the returned dtype and widened again. It is 0 outside the
    channels, where scale and shift are read as 0."""
    x, weight, bias, scale, shift = gated
    normed = affine((value - mean) * inverse, weight, bias, column, column < width)
    y = normed * _tanh(read(scale, column, mask)) + read(shift, column, mask)
    return y.to(x.dtype.element_ty).to(tl.float32)


@triton.jit
def _gated_piece(given, column, mask):
    gated, mean, inverse, width = given
    return _gated(wide(gated[0], column, mask), mean, inverse, gated, column, mask, width)


@triton.jit
def _scaled(y, mean, inverse, weight, bias, scale, column, mask, width):
    normed = affine((y - mean) * inverse, weight, bias, column, column < width)
    return normed * (1.0 + read(scale, column, mask))


@triton.jit
def gated_norm(
    x, scale, shift, weight, bias, scale2, weight2, bias2, y, y2, rows, tokens, width, eps,
    RMS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, HELD_WHOLE: tl.constexpr,
):  # fmt: skip
    """Norm ROWS tokens per program. With `HELD_WHOLE` a token fits BLOCK; otherwise it is processed in pieces of BLOCK.

    `scale2` and `y2` are given together. Without them there is no second norm.
    """
    batch, token, there = places(rows, tokens, ROWS)
    x, y, y2 = (
        token_start(x, batch, token),
        token_start(y, batch, token),
        y2 if y2 is None else token_start(y2, batch, token),
    )
    scale, shift, scale2 = (
        row_start(scale, batch, token),
        row_start(shift, batch, token),
        scale2 if scale2 is None else row_start(scale2, batch, token),
    )
    gated = (x, weight, bias, scale, shift)
    if HELD_WHOLE:
        column = tl.arange(0, BLOCK)[None, :]
        mask = there & (column < width)
        value = wide(x, column, mask)
        mean, inverse = held_statistics(value, mask, width, eps, RMS)
        value = _gated(value, mean, inverse, gated, column, mask, width)
        write(y, column, value, mask)
        if y2 is not None:
            mean, inverse = held_statistics(value, mask, width, eps, RMS)
            write(y2, column, _scaled(value, mean, inverse, weight2, bias2, scale2, column, mask, width), mask)
    else:
        mean, inverse = streamed_statistics(wide, x, there, width, eps, RMS, ROWS, BLOCK)
        given = (gated, mean, inverse, width)
        if y2 is not None:
            mean2, inverse2 = streamed_statistics(_gated_piece, given, there, width, eps, RMS, ROWS, BLOCK)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            mask = there & (column < width)
            value = _gated_piece(given, column, mask)
            write(y, column, value, mask)
            if y2 is not None:
                write(y2, column, _scaled(value, mean2, inverse2, weight2, bias2, scale2, column, mask, width), mask)


def _launch(
    x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor | None, bias: Tensor | None, norm_type: str, eps: float,
    y: Tensor, scale2: Tensor | None = None, weight2: Tensor | None = None, bias2: Tensor | None = None,
    y2: Tensor | None = None,
) -> None:  # fmt: skip
    if x.numel() == 0:
        return
    shape = shape_of("norm_tanh_mul_add" if scale2 is None else "norm_tanh_mul_add_norm_scale", x)
    with torch.cuda.device_of(x):
        for own, second, to, *modulations in folded((x, y2, y), (scale, shift, scale2)):
            assert own is not None
            gate, more, by = (rows_of(row, own) for row in modulations)
            rows = own.numel() // own.shape[-1]
            gated_norm[(triton.cdiv(rows, shape.rows),)](
                tokens_of(own), gate, more, weight, bias, by, weight2, bias2, tokens_of(to), tokens_of(second), rows,
                own.shape[-2], own.shape[-1], eps, RMS=norm_type == "rms", **shape.options,
            )  # fmt: skip


def norm_tanh_mul_add(
    x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
    *, norm_type: str = "rms", eps: float = 1e-5, out: Any = None,
) -> Tensor:  # fmt: skip
    y = rows_like(x) if out is None else out
    _launch(x, scale, shift, weight, bias, norm_type, eps, y)
    return y


def norm_tanh_mul_add_norm_scale(
    x: Tensor, scale: Tensor, shift: Tensor, scale2: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
    weight2: Tensor | None = None, bias2: Tensor | None = None,
    *, norm_type: str = "rms", eps: float = 1e-5, out: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    y, y2 = out or (rows_like(x), rows_like(x))
    _launch(x, scale, shift, weight, bias, norm_type, eps, y, scale2, weight2, bias2, y2)
    return y, y2
