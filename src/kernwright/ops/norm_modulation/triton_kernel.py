"""Norm, scale and shift in Triton, plain and behind a gated residual: what runs on a GPU where there is no nvcc.

Contract: close. What is normed is rounded to x's dtype, as it is returned; statistics in float32, centred before they
are squared; then one chain in float32 and one rounding, where the eager chain rounds after each step.
Bytes a token: x (and residual) read once, y (and their sum) written once, up to a width of HELD; a wider token is read
three times, the second and third time out of the cache. Modulations that tokens share stay in the cache.
Share of a copy's bandwidth: not measured yet.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernwright.ops.modulation_layout import ModulationLayout, layout

HELD = 16384  # the widest token that a program keeps in registers: 32 values a thread with 16 warps


@triton.jit
def _row(start, batch_step, token_step, tokens_per_row, batch, token):
    """Where each token's row of a modulation begins."""
    return start + batch * batch_step + token // tokens_per_row * token_step


@triton.jit
def _value(x, residual, gate, column, mask, gate_step, RESIDUAL: tl.constexpr, GATE: tl.constexpr):
    """What is normed, rounded as it is returned, and widened again."""
    own = tl.load(x + column, mask, 0.0)
    value = own.to(tl.float32)
    if RESIDUAL:
        if GATE:
            value *= tl.load(gate + column * gate_step, mask, 0.0).to(tl.float32)
        value += tl.load(residual + column, mask, 0.0).to(tl.float32)
        value = value.to(own.dtype).to(tl.float32)
    return value


@triton.jit
def _modulated(
    normed, scale, shift, weight, bias, column, there, width, scale_step, shift_step,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    inside = column < width
    if WEIGHT:
        normed *= tl.load(weight + column, inside, 0.0).to(tl.float32)
    if BIAS:
        normed += tl.load(bias + column, inside, 0.0).to(tl.float32)
    by = tl.load(scale + column * scale_step, there & inside, 0.0).to(tl.float32)
    to = tl.load(shift + column * shift_step, there & inside, 0.0).to(tl.float32)
    return normed * (1.0 + by) + to


@triton.jit
def norm_modulate(
    x, residual, scale, shift, gate, weight, bias, y, total,
    rows, tokens, width, eps,
    x_batch, x_token, residual_batch, residual_token, y_batch, y_token, total_batch, total_token,
    scale_batch, scale_token, scale_per, scale_step,
    shift_batch, shift_token, shift_per, shift_step,
    gate_batch, gate_token, gate_per, gate_step,
    RMS: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, GATE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, HELD_WHOLE: tl.constexpr,
):  # fmt: skip
    """ROWS tokens a program. `HELD_WHOLE`: a token fits BLOCK; otherwise it is walked through in pieces of BLOCK."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    there = row < rows
    batch, token = row // tokens, row % tokens
    x += batch * x_batch + token * x_token
    y += batch * y_batch + token * y_token
    scale = _row(scale, scale_batch, scale_token, scale_per, batch, token)
    shift = _row(shift, shift_batch, shift_token, shift_per, batch, token)
    if RESIDUAL:
        residual += batch * residual_batch + token * residual_token
        total += batch * total_batch + token * total_token
        if GATE:
            gate = _row(gate, gate_batch, gate_token, gate_per, batch, token)
    if HELD_WHOLE:
        column = tl.arange(0, BLOCK)[None, :]
        mask = there & (column < width)
        value = _value(x, residual, gate, column, mask, gate_step, RESIDUAL, GATE)
        if RESIDUAL:
            tl.store(total + column, value.to(total.dtype.element_ty), mask)
        if not RMS:
            value -= tl.sum(value, 1, keep_dims=True) / width
            value = tl.where(mask, value, 0.0)
        normed = value * tl.rsqrt(tl.sum(value * value, 1, keep_dims=True) / width + eps)
        normed = _modulated(
            normed, scale, shift, weight, bias, column, there, width, scale_step, shift_step, WEIGHT, BIAS
        )
        tl.store(y + column, normed.to(y.dtype.element_ty), mask)
    else:
        mean = tl.zeros([ROWS, 1], tl.float32)
        if not RMS:
            sums = tl.zeros([ROWS, BLOCK], tl.float32)
            for start in range(0, width, BLOCK):
                column = start + tl.arange(0, BLOCK)[None, :]
                sums += _value(x, residual, gate, column, there & (column < width), gate_step, RESIDUAL, GATE)
            mean = tl.sum(sums, 1, keep_dims=True) / width
        squares = tl.zeros([ROWS, BLOCK], tl.float32)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            mask = there & (column < width)
            value = _value(x, residual, gate, column, mask, gate_step, RESIDUAL, GATE)
            if RESIDUAL:
                tl.store(total + column, value.to(total.dtype.element_ty), mask)
            value = tl.where(mask, value - mean, 0.0)
            squares += value * value
        inverse = tl.rsqrt(tl.sum(squares, 1, keep_dims=True) / width + eps)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            mask = there & (column < width)
            # Formed anew rather than read back: what another thread stored is not this thread's to read.
            value = _value(x, residual, gate, column, mask, gate_step, RESIDUAL, GATE)
            normed = (value - mean) * inverse
            normed = _modulated(
                normed, scale, shift, weight, bias, column, there, width, scale_step, shift_step, WEIGHT, BIAS
            )
            tl.store(y + column, normed.to(y.dtype.element_ty), mask)


@dataclass(frozen=True)
class Shape:
    """How a width is laid out: tokens a program, columns a piece, warps."""

    rows: int
    block: int
    warps: int
    held_whole: bool


def shape_for(width: int) -> Shape:
    """A table rather than a search: a memory-bound kernel has one good shape a width, and a search costs seconds."""
    block = triton.next_power_of_2(max(width, 16))
    if block > HELD:
        return Shape(1, 4096, 8, False)
    if block <= 512:  # small tokens: several a program, so that each thread has some 8 values
        return Shape(max(1, 1024 // block), block, 4, True)
    return Shape(1, block, {1024: 4, 2048: 4, 4096: 8, 8192: 16}.get(block, 16), True)


def _steps(tensor: Tensor) -> tuple[int, int]:
    return (tensor.stride(0) if tensor.ndim == 3 else 0), tensor.stride(-2)


def _rows_of(modulation: Tensor | None, x: Tensor) -> tuple[int, int, int, int]:
    own = ModulationLayout() if modulation is None else layout(modulation, x)
    return own.batch_step, own.token_step, own.tokens_per_row, own.channel_step


def _launch(
    x: Tensor, residual: Tensor | None, scale: Tensor, shift: Tensor, gate: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, norm_type: str, eps: float, y: Tensor, total: Tensor | None,
) -> None:  # fmt: skip
    if x.numel() == 0:
        return
    width, tokens = x.shape[-1], x.shape[-2]
    rows, shape = x.numel() // width, shape_for(width)
    grid = (triton.cdiv(rows, shape.rows),)
    with torch.cuda.device_of(x):
        norm_modulate[grid](
            x, x if residual is None else residual, scale, shift, scale if gate is None else gate,
            x if weight is None else weight, x if bias is None else bias, y, y if total is None else total,
            rows, tokens, width, eps,
            *_steps(x), *(_steps(x) if residual is None else _steps(residual)), *_steps(y),
            *(_steps(y) if total is None else _steps(total)),
            *_rows_of(scale, x), *_rows_of(shift, x), *_rows_of(gate, x),
            RMS=norm_type == "rms", WEIGHT=weight is not None, BIAS=bias is not None, RESIDUAL=residual is not None,
            GATE=gate is not None, ROWS=shape.rows, BLOCK=shape.block, HELD_WHOLE=shape.held_whole,
            num_warps=shape.warps,
        )  # fmt: skip


def norm_scale_shift(
    x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
    *, norm_type: str = "layer", eps: float = 1e-6, out: Any = None,
) -> Tensor:  # fmt: skip
    y = torch.empty_like(x) if out is None else out
    _launch(x, None, scale, shift, None, weight, bias, norm_type, eps, y, None)
    return y


def residual_norm_scale_shift(
    x: Tensor, residual: Tensor, scale: Tensor, shift: Tensor, gate: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None,
    *, norm_type: str = "layer", eps: float = 1e-6, out: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    y, total = (torch.empty_like(x), torch.empty_like(x)) if out is None else out
    _launch(x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, total)
    return y, total
