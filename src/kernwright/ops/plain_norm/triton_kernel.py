"""LayerNorm and RMSNorm in Triton: what runs on a GPU where there is no nvcc.

Contract: close. Statistics in float32, centred before they are squared; then one chain in float32 and one rounding.
Bytes a row: read once and written once up to a width of 16384; a wider row is read three times, the second and third
time out of the cache. Small rows (512 and below) come several a program, in one pass.
Share of a copy's bandwidth: not measured yet.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernwright.ops.norm_modulation.triton_kernel import shape_for
from kernwright.ops.plain_norm.rows import batches


@triton.jit
def _store(y, normed, weight, bias, column, mask, width, WEIGHT: tl.constexpr, BIAS: tl.constexpr):
    inside = column < width
    if WEIGHT:
        normed *= tl.load(weight + column, inside, 0.0).to(tl.float32)
    if BIAS:
        normed += tl.load(bias + column, inside, 0.0).to(tl.float32)
    tl.store(y + column, normed.to(y.dtype.element_ty), mask)


@triton.jit
def norm_rows(
    x, weight, bias, y,
    rows, tokens, width, eps, x_batch, x_token, y_batch, y_token,
    RMS: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, HELD_WHOLE: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program. `HELD_WHOLE`: a row fits BLOCK; otherwise it is walked through in pieces of BLOCK."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    there = row < rows
    batch, token = row // tokens, row % tokens
    x += batch * x_batch + token * x_token
    y += batch * y_batch + token * y_token
    if HELD_WHOLE:
        column = tl.arange(0, BLOCK)[None, :]
        mask = there & (column < width)
        value = tl.load(x + column, mask, 0.0).to(tl.float32)
        if not RMS:
            value = tl.where(mask, value - tl.sum(value, 1, keep_dims=True) / width, 0.0)
        normed = value * tl.rsqrt(tl.sum(value * value, 1, keep_dims=True) / width + eps)
        _store(y, normed, weight, bias, column, mask, width, WEIGHT, BIAS)
    else:
        mean = tl.zeros([ROWS, 1], tl.float32)
        if not RMS:
            sums = tl.zeros([ROWS, BLOCK], tl.float32)
            for start in range(0, width, BLOCK):
                column = start + tl.arange(0, BLOCK)[None, :]
                sums += tl.load(x + column, there & (column < width), 0.0).to(tl.float32)
            mean = tl.sum(sums, 1, keep_dims=True) / width
        squares = tl.zeros([ROWS, BLOCK], tl.float32)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            mask = there & (column < width)
            value = tl.where(mask, tl.load(x + column, mask, 0.0).to(tl.float32) - mean, 0.0)
            squares += value * value
        inverse = tl.rsqrt(tl.sum(squares, 1, keep_dims=True) / width + eps)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            mask = there & (column < width)
            normed = (tl.load(x + column, mask, 0.0).to(tl.float32) - mean) * inverse
            _store(y, normed, weight, bias, column, mask, width, WEIGHT, BIAS)


def _launch(x: Tensor, weight: Tensor | None, bias: Tensor | None, rms: bool, eps: float, y: Tensor) -> None:
    width = x.shape[-1]
    shape = shape_for(width)
    with torch.cuda.device_of(x):
        for own, to in batches(x, y):
            rows = own.shape[0] * own.shape[1]
            norm_rows[(triton.cdiv(rows, shape.rows),)](
                own, own if weight is None else weight, own if bias is None else bias, to,
                rows, own.shape[1], width, eps, own.stride(0), own.stride(1), to.stride(0), to.stride(1),
                RMS=rms, WEIGHT=weight is not None, BIAS=bias is not None,
                ROWS=shape.rows, BLOCK=shape.block, HELD_WHOLE=shape.held_whole, num_warps=shape.warps,
            )  # fmt: skip


def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-6, out: Tensor | None = None
) -> Tensor:
    y = torch.empty_like(x) if out is None else out
    _launch(x, weight, bias, False, eps, y)
    return y


def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-6, out: Tensor | None = None) -> Tensor:
    y = torch.empty_like(x) if out is None else out
    _launch(x, weight, None, True, eps, y)
    return y
