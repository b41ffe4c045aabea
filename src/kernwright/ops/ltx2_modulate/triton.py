"""LTX-2's RMS norm with one or two modulations in Triton, from tensors or from table and timestep. It runs on a GPU
where there is no nvcc.

Contract: close. Statistics in float32, and a float32 result. It rounds where the chain does: `1 + scale`, and before
that the sum of table and timestep, in the modulation's dtype. It differs from the chain in the order of the sum over a
token, and in products that may be fused into sums. A second kernel sums as torch does on a GPU and fuses
nothing: it is exact where the device shows that it is (`exactness.py`).
Bytes per token: x (and a modulation per token) read once, float32 results written once, up to a width of HELD; a wider
token, or one of the second kernel, is read twice, the second time from the cache, where rows that tokens share stay.
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
from kernwright.ops._shared.modulation_layout import aligned
from kernwright.ops._shared.triton_tokens import (
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

EXACT_OPTIONS = {"BLOCK": 2048, "num_warps": 4, "enable_fp_fusion": False}
SUMS = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@triton.jit
def _summed(own, row, batch, token, column, mask, SUM: tl.constexpr):
    """Return a scale or shift, or its sum with a row of the table."""
    value = read(row_start(own, batch, token), column, mask)
    if row is not None:
        value = (read(row_start(row, batch, token), column, mask) + value).to(SUM).to(tl.float32)
    return value


@triton.jit
def _modulated(normed, modulation, batch, token, column, mask, SUM: tl.constexpr):
    scale, shift, scale_row, shift_row = modulation
    own: tl.constexpr = scale[0].dtype.element_ty if scale_row is None else SUM
    gain = (1.0 + _summed(scale, scale_row, batch, token, column, mask, SUM)).to(own).to(tl.float32)
    return normed * gain + _summed(shift, shift_row, batch, token, column, mask, SUM)


@triton.jit
def rms_modulated(
    x, first, second, y0, y1, rows, tokens, width, eps,
    SUM: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, HELD_WHOLE: tl.constexpr,
):  # fmt: skip
    """Norm ROWS tokens per program. With HELD_WHOLE a token fits BLOCK; otherwise it is processed in pieces of BLOCK.

    A modulation is a scale, a shift and the table's rows for both; SUM is the dtype of their sums. `second` and `y1`
    are given together.
    """
    batch, token, there = places(rows, tokens, ROWS)
    x, y0, y1 = (
        token_start(x, batch, token),
        token_start(y0, batch, token),
        y1 if y1 is None else token_start(y1, batch, token),
    )
    if HELD_WHOLE:
        column = tl.arange(0, BLOCK)[None, :]
        mask = there & (column < width)
        value = wide(x, column, mask)
        _, inverse = held_statistics(value, mask, width, eps, True)
        write(y0, column, _modulated(value * inverse, first, batch, token, column, mask, SUM), mask)
        if y1 is not None:
            write(y1, column, _modulated(value * inverse, second, batch, token, column, mask, SUM), mask)
    else:
        _, inverse = streamed_statistics(wide, x, there, width, eps, True, ROWS, BLOCK)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            mask = there & (column < width)
            normed = wide(x, column, mask) * inverse
            write(y0, column, _modulated(normed, first, batch, token, column, mask, SUM), mask)
            if y1 is not None:
                write(y1, column, _modulated(normed, second, batch, token, column, mask, SUM), mask)


@triton.jit
def _squares_in_torchs_order(x, width):
    """Sum by 128 threads with groups of four channels in turn; then lanes 16, 8, 4, 2, 1 and warps 2, 1 apart."""
    sums = tl.zeros([128], tl.float32)
    for start in range(0, width, 512):
        column = start + tl.arange(0, 128)[:, None] * 4 + tl.arange(0, 4)[None, :]
        even, odd = tl.split(tl.reshape(wide(x, column, column < width), [128, 2, 2]))
        first, third = tl.split(even)
        second, fourth = tl.split(odd)
        sums = tl.fma(first, first, sums)
        sums = tl.fma(second, second, sums)
        sums = tl.fma(third, third, sums)
        sums = tl.fma(fourth, fourth, sums)
    # Each of these sums has two terms, so that its order does not matter.
    lanes = tl.sum(tl.reshape(sums, [4, 2, 16]), 1)
    lanes = tl.sum(tl.reshape(lanes, [4, 2, 8]), 1)
    lanes = tl.sum(tl.reshape(lanes, [4, 2, 4]), 1)
    lanes = tl.sum(tl.reshape(lanes, [4, 2, 2]), 1)
    warps = tl.sum(lanes, 1)
    return tl.sum(tl.sum(tl.reshape(warps, [2, 2]), 0), 0)


@triton.jit
def rms_modulated_exactly(
    x, first, second, y0, y1, rows, tokens, width, eps, SUM: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Norm a token per program of four warps, as torch does. Only the sum fuses products."""
    batch, token, there = places(rows, tokens, 1)
    x, y0, y1 = (
        token_start(x, batch, token),
        token_start(y0, batch, token),
        y1 if y1 is None else token_start(y1, batch, token),
    )
    inverse = tl.rsqrt(tl.div_rn(_squares_in_torchs_order(x, width), width.to(tl.float32)) + eps)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        mask = there & (column < width)
        normed = inverse * wide(x, column, mask)
        write(y0, column, _modulated(normed, first, batch, token, column, mask, SUM), mask)
        if y1 is not None:
            write(y1, column, _modulated(normed, second, batch, token, column, mask, SUM), mask)


Pairs = list[tuple[Tensor, Tensor]]


def _launch(
    x: Tensor,
    modulations: Pairs,
    table: Pairs | None,
    eps: float,
    outputs: tuple[Tensor, ...],
    sums: torch.dtype,
    exact: bool,
) -> None:
    """Launch for pairs of scale and shift, or for pairs of embeddings that are added to the table's rows."""
    if x.numel() == 0:
        return
    is_one = len(outputs) == 1
    shape = shape_of("rms_modulate" if is_one else "dual_modulate", x)
    given = [aligned(own, x.ndim) for pair in modulations for own in pair]
    with torch.cuda.device_of(x):
        for own, *views in folded((x, *outputs), given):
            assert own is not None
            by = [rows_of(row, own) for row in views[len(outputs) :]]
            rows_of_table = [rows_of(row, own) for pair in table or () for row in pair] or [None] * 4
            first, second = ((*by[at : at + 2], *rows_of_table[at : at + 2]) for at in (0, 2))
            to = (tokens_of(views[0]), None if is_one else tokens_of(views[1]))
            rows = own.numel() // own.shape[-1]
            more = (tokens_of(own), first, None if is_one else second, *to, rows, own.shape[-2], own.shape[-1], eps)
            if exact:
                rms_modulated_exactly[(rows,)](*more, SUM=SUMS[sums], **EXACT_OPTIONS)
            else:
                rms_modulated[(triton.cdiv(rows, shape.rows),)](*more, SUM=SUMS[sums], **shape.options)


def rms_modulate(
    x: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-6, exact: bool = False, out: Any = None
) -> Tensor:
    y = rows_like(x, torch.float32) if out is None else out
    _launch(x, [(scale, shift)], None, eps, (y,), torch.float32, exact)
    return y


def dual_modulate(
    x: Tensor, scale0: Tensor, shift0: Tensor, scale1: Tensor, shift1: Tensor,
    *, eps: float = 1e-6, exact: bool = False, out: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    y0, y1 = out or (rows_like(x, torch.float32), rows_like(x, torch.float32))
    _launch(x, [(scale0, shift0), (scale1, shift1)], None, eps, (y0, y1), torch.float32, exact)
    return y0, y1


def _of_table(temb: Tensor, table: Tensor) -> tuple[Pairs, Pairs]:
    """Return the rows of the timestep and of the table, each as pairs of scale and shift."""
    embedded = temb.view(*temb.shape[:2], *table.shape).unbind(2)
    timestep, rows = ([*zip(own[::2], own[1::2], strict=True)] for own in (embedded, table.unbind()))
    return timestep, rows


def rms_modulate_from_table(
    x: Tensor, temb_scale_shift: Tensor, scale_shift_table: Tensor,
    *, eps: float = 1e-6, exact: bool = False, out: Any = None,
) -> Tensor:  # fmt: skip
    y = rows_like(x, torch.float32) if out is None else out
    timestep, rows = _of_table(temb_scale_shift, scale_shift_table)
    sums = torch.promote_types(temb_scale_shift.dtype, scale_shift_table.dtype)
    _launch(x, timestep, rows, eps, (y,), sums, exact)
    return y


def dual_modulate_from_table(
    x: Tensor, temb_scale_shift: Tensor, scale_shift_table: Tensor,
    *, eps: float = 1e-6, exact: bool = False, out: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    y0, y1 = out or (rows_like(x, torch.float32), rows_like(x, torch.float32))
    timestep, rows = _of_table(temb_scale_shift, scale_shift_table)
    _launch(
        x, timestep, rows, eps, (y0, y1), torch.promote_types(temb_scale_shift.dtype, scale_shift_table.dtype), exact
    )
    return y0, y1
