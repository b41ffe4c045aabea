"""norm_scale_shift and residual_norm_scale_shift in Triton with the bits of the eager chain, for LayerNorm without
weight and bias. They run for `contract="exact"` on a GPU without nvcc.

Contract: exact if the device shows that torch norms in the order of this kernel (see `exactness.py`). Before and after
the norm, every step rounds where the chain rounds (see `exact_policy.h`). Only products that torch's own kernel fuses
are fused.

Bytes per token: x (and residual) is read once from memory and once more from the cache, y (and their sum) is written
once, and modulations per token are read once. Rows that tokens share stay in the cache. Share of a copy's bandwidth:
not measured yet.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernwright.ops._shared.folding import folded
from kernwright.ops._shared.triton_tokens import places, read, row_start, rows_of, token_start, tokens_of, wide, write
from kernwright.runtime.outputs import rows_like

OPTIONS = {"BLOCK": 2048, "num_warps": 4, "enable_fp_fusion": False}


@triton.jit
def _multiplied(value, factor, DTYPE: tl.constexpr, ROUNDS: tl.constexpr, CASTS: tl.constexpr):
    """Return the product in float32, rounded to x's dtype where the chain rounds. A number without an axis is cast to
    that dtype first."""
    if CASTS:
        factor = factor.to(DTYPE).to(tl.float32)
    value = value * factor
    if ROUNDS:
        value = value.to(DTYPE).to(tl.float32)
    return value


@triton.jit
def _value(x, residual, gate, column, mask, ROUNDS_GATED: tl.constexpr, CASTS_GATE: tl.constexpr):
    """Return the normed values, rounded to the returned dtype."""
    value = wide(x, column, mask)
    if residual is not None:
        if gate is not None:
            value = _multiplied(value, read(gate, column, mask), x.dtype.element_ty, ROUNDS_GATED, CASTS_GATE)
        value = (value + wide(residual, column, mask, x)).to(x.dtype.element_ty).to(tl.float32)
    return value


@triton.jit
def _taken(part, value, there):
    """Add one channel to each thread that has one."""
    mean, squares, count = part
    more = count + 1.0
    apart = value - mean
    next_mean = tl.fma(apart, tl.div_rn(tl.full(more.shape, 1.0, tl.float32), more), mean)
    next_squares = tl.fma(apart, value - next_mean, squares)
    return tl.where(there, next_mean, mean), tl.where(there, next_squares, squares), tl.where(there, more, count)


@triton.jit
def _met(part, BESIDE: tl.constexpr, APART: tl.constexpr):
    """Merge pairs of parts that are APART parts from each other, in BESIDE runs of 2 * APART parts. The result replaces
    b."""
    mean, squares, count = part
    mean_b, mean_a = tl.split(tl.permute(tl.reshape(mean, [BESIDE, 2, APART]), [0, 2, 1]))
    squares_b, squares_a = tl.split(tl.permute(tl.reshape(squares, [BESIDE, 2, APART]), [0, 2, 1]))
    count_b, count_a = tl.split(tl.permute(tl.reshape(count, [BESIDE, 2, APART]), [0, 2, 1]))
    whole = count_a + count_b
    is_any = whole > 0.0
    one = tl.div_rn(tl.full(whole.shape, 1.0, tl.float32), tl.where(is_any, whole, 1.0))
    of_a, of_b, apart = count_a * one, count_b * one, mean_b - mean_a
    mean = tl.fma(of_a, mean_a, of_b * mean_b)
    squares = tl.fma(apart * apart * count_a, of_b, squares_a + squares_b)
    return tl.where(is_any, mean, 0.0), tl.where(is_any, squares, 0.0), whole


@triton.jit
def _statistics_in_torchs_order(x, residual, gate, there, width, ROUNDS_GATED: tl.constexpr, CASTS_GATE: tl.constexpr):
    """Sum with 128 threads that take groups of four channels in turn. Then lanes 16, 8, 4, 2 and 1 apart are merged,
    and warps 2 and 1 apart."""
    zeros = tl.zeros([128], tl.float32)
    part = (zeros, zeros, zeros)
    for start in range(0, width, 512):
        column = start + tl.arange(0, 128)[:, None] * 4 + tl.arange(0, 4)[None, :]
        value = _value(x, residual, gate, column, there & (column < width), ROUNDS_GATED, CASTS_GATE)
        even, odd = tl.split(tl.reshape(value, [128, 2, 2]))
        first, third = tl.split(even)
        second, fourth = tl.split(odd)
        inside = start + tl.arange(0, 128) * 4 < width
        part = _taken(part, first, inside)
        part = _taken(part, second, inside)
        part = _taken(part, third, inside)
        part = _taken(part, fourth, inside)
    part = _met(part, 4, 16)
    part = _met(part, 4, 8)
    part = _met(part, 4, 4)
    part = _met(part, 4, 2)
    part = _met(part, 4, 1)
    part = _met(part, 1, 2)
    mean, squares, _ = _met(part, 1, 1)
    return mean, squares


@triton.jit
def norm_modulated_exactly(
    x, residual, gate, scale, shift, y, total, rows, tokens, width, eps,
    ROUNDS_GATED: tl.constexpr, CASTS_GATE: tl.constexpr,
    ROUNDS: tl.constexpr, CASTS_SCALE: tl.constexpr, CASTS_SHIFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Norm one token per program of four warps, as torch does. Products are fused only where the code says so."""
    batch, token, there = places(rows, tokens, 1)
    x, y = token_start(x, batch, token), token_start(y, batch, token)
    residual, gate, total = (
        residual if residual is None else token_start(residual, batch, token),
        gate if gate is None else row_start(gate, batch, token),
        total if total is None else token_start(total, batch, token),
    )
    by, to = row_start(scale, batch, token), row_start(shift, batch, token)
    mean, squares = _statistics_in_torchs_order(x, residual, gate, there, width, ROUNDS_GATED, CASTS_GATE)
    inverse = tl.rsqrt(tl.div_rn(squares, tl.zeros_like(squares) + width.to(tl.float32)) + eps)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        mask = there & (column < width)
        value = _value(x, residual, gate, column, mask, ROUNDS_GATED, CASTS_GATE)
        if total is not None:
            write(total, column, value, mask)
        normed = (inverse * (value - mean)).to(x.dtype.element_ty).to(tl.float32)
        gain = (1.0 + read(by, column, mask)).to(scale[0].dtype.element_ty).to(tl.float32)
        offset = read(to, column, mask, x)
        if CASTS_SHIFT:
            offset = offset.to(x.dtype.element_ty).to(tl.float32)
        write(y, column, _multiplied(normed, gain, x.dtype.element_ty, ROUNDS, CASTS_SCALE) + offset, mask)


def _roundings(factor: Tensor | None, x: Tensor) -> tuple[bool, bool]:
    """Return whether the product with a factor rounds to x's dtype, and whether the factor is first cast to it."""
    if factor is None or x.dtype == torch.float32:
        return False, False
    is_number, is_alike = factor.ndim == 0, factor.dtype == x.dtype
    return is_number or is_alike, is_number and not is_alike


def _launch(
    x: Tensor, residual: Tensor | None, gate: Tensor | None, scale: Tensor, shift: Tensor, eps: float, y: Tensor,
    total: Tensor | None,
) -> None:  # fmt: skip
    if x.numel() == 0:
        return
    (rounds_gated, casts_gate), (rounds, casts_scale) = _roundings(gate, x), _roundings(scale, x)
    with torch.cuda.device_of(x):
        for own, before, given, to, *modulations in folded((x, residual, total, y), (gate, scale, shift)):
            assert own is not None
            rows = own.numel() // own.shape[-1]
            norm_modulated_exactly[(rows,)](
                tokens_of(own), tokens_of(before), *(rows_of(row, own) for row in modulations), tokens_of(to),
                tokens_of(given), rows, own.shape[-2], own.shape[-1], eps, ROUNDS_GATED=rounds_gated,
                CASTS_GATE=casts_gate, ROUNDS=rounds, CASTS_SCALE=casts_scale,
                CASTS_SHIFT=rounds and shift.ndim == 0 and shift.dtype != x.dtype, **OPTIONS,
            )  # fmt: skip


def norm_scale_shift(
    x: Tensor, scale: Tensor, shift: Tensor, weight: None = None, bias: None = None,
    *, norm_type: str = "layer", eps: float = 1e-6, out: Any = None,
) -> Tensor:  # fmt: skip
    y = rows_like(x) if out is None else out
    _launch(x, None, None, scale, shift, eps, y, None)
    return y


def residual_norm_scale_shift(
    x: Tensor, residual: Tensor, scale: Tensor, shift: Tensor, gate: Tensor | None = None, weight: None = None,
    bias: None = None, *, norm_type: str = "layer", eps: float = 1e-6, out: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    y, total = (rows_like(x), rows_like(x)) if out is None else out
    _launch(x, residual, gate, scale, shift, eps, y, total)
    return y, total
