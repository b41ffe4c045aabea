"""LayerNorm and RMSNorm in Triton. They run on a GPU where there is no nvcc.

Contract: close. Statistics in float32, centred before they are squared; then one chain in float32 and one rounding.
Bytes per row: read once and written once up to a width of 16384; a wider row is read three times, the second and third
time from the cache. A program takes several small rows (512 and below) in one pass.
Share of a copy's bandwidth: not measured yet.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

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
def _finish(value, mean, inverse, weight, bias, y, column, there, width):
    inside = column < width
    write(y, column, affine((value - mean) * inverse, weight, bias, column, inside), there & inside)


@triton.jit
def norm_rows(
    x, weight, bias, y, rows, tokens, width, eps,
    RMS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, HELD_WHOLE: tl.constexpr,
):  # fmt: skip
    """Norm ROWS rows per program. With HELD_WHOLE a row fits BLOCK; otherwise it is processed in pieces of BLOCK."""
    batch, token, there = places(rows, tokens, ROWS)
    own, to = token_start(x, batch, token), token_start(y, batch, token)
    if HELD_WHOLE:
        column = tl.arange(0, BLOCK)[None, :]
        mask = there & (column < width)
        value = wide(own, column, mask)
        mean, inverse = held_statistics(value, mask, width, eps, RMS)
        _finish(value, mean, inverse, weight, bias, to, column, there, width)
    else:
        mean, inverse = streamed_statistics(wide, own, there, width, eps, RMS, ROWS, BLOCK)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            value = wide(own, column, there & (column < width))
            _finish(value, mean, inverse, weight, bias, to, column, there, width)


def _launch(x: Tensor, weight: Tensor | None, bias: Tensor | None, rms: bool, eps: float, y: Tensor) -> None:
    width = x.shape[-1]
    shape = shape_of("rms_norm" if rms else "layer_norm", x)
    with torch.cuda.device_of(x):
        for own, to in batches(x, y):
            rows = own.shape[0] * own.shape[1]
            norm_rows[(triton.cdiv(rows, shape.rows),)](
                tokens_of(own), weight, bias, tokens_of(to), rows, own.shape[1], width, eps, RMS=rms, **shape.options
            )


def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-6, out: Tensor | None = None
) -> Tensor:
    y = rows_like(x) if out is None else out
    _launch(x, weight, bias, False, eps, y)
    return y


def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-6, out: Tensor | None = None) -> Tensor:
    y = rows_like(x) if out is None else out
    _launch(x, weight, None, True, eps, y)
    return y
