"""scale_shift, residual_gate and broadcast_add in Triton. They run on a GPU without nvcc.

Contract: exact. Each rounding of the eager chain is made in the same place (see `policy.h`), and no product is fused
into a sum: the kernel is compiled without fusion.

Bytes per token: x is read once, y is written once, and modulations per token are read once. Rows that tokens share stay
in the cache.

Share of a copy's bandwidth: not measured against the present copy. Times of an earlier version on an H200, by graph
replay with a cold cache: scale_shift 81 us for 27,030 tokens of width 3072 in bfloat16, and 186 us for 37,800 tokens of
width 5120 with float32 rows; residual_gate 187 us for 32,640 tokens of width 4096.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernwright.ops._shared.folding import folded
from kernwright.ops._shared.modulation_layout import ModulationLayout, layout
from kernwright.ops._shared.sums import folded_sum, sum_like
from kernwright.ops._shared.triton_tokens import steps, widened
from kernwright.runtime.outputs import rows_like
from kernwright.runtime.triton.configurations import Configuration, power_of_two
from kernwright.runtime.triton.tuning import chosen

OPTIONS = {"enable_fp_fusion": False}


@triton.jit
def _loaded(
    start, batch_step, token_step, tokens_per_row, channel_step, batch, token, there, column, inside, y,
    SHARED: tl.constexpr,
):  # fmt: skip
    """Return a modulation's values in float32: one row for all tokens of the tile, or one for each."""
    start += batch * batch_step
    if SHARED:
        values = tl.load(start + column * channel_step, inside, 0.0)
    else:
        rows = start + token // tokens_per_row * token_step
        values = tl.load(rows + column * channel_step, there & inside, 0.0)
    return widened(values, y)


@triton.jit
def modulate(
    x, scale, shift, y, tokens, width, constant,
    x_batch, x_token, y_batch, y_token,
    scale_batch, scale_token, scale_per, scale_step,
    shift_batch, shift_token, shift_per, shift_step,
    SCALE: tl.constexpr, CONSTANT: tl.constexpr, SCALE_SHARED: tl.constexpr, SHIFT_SHARED: tl.constexpr,
    ROUND_PRODUCT: tl.constexpr, CAST_SCALE: tl.constexpr, CAST_SHIFT: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Process ROWS tokens of BLOCK channels per program. Consecutive programs are next to each other on a token."""
    program = tl.program_id(0).to(tl.int64)
    chunks, groups = tl.cdiv(width, BLOCK), tl.cdiv(tokens, ROWS)
    column = program % chunks * BLOCK + tl.arange(0, BLOCK)[None, :]
    token = program // chunks % groups * ROWS + tl.arange(0, ROWS)[:, None]
    batch = program // chunks // groups
    there, inside = token < tokens, column < width
    own = tl.load(x + batch * x_batch + token * x_token + column, there & inside, 0.0)
    value = own.to(tl.float32)
    if SCALE:
        gain = _loaded(
            scale, scale_batch, scale_token, scale_per, scale_step, batch, token, there, column, inside, y, SCALE_SHARED
        )
        if CONSTANT:
            gain = (gain + constant).to(scale.dtype.element_ty).to(tl.float32)
        if CAST_SCALE:
            gain = gain.to(own.dtype).to(tl.float32)
        value = value * gain
        if ROUND_PRODUCT:
            value = widened(value.to(own.dtype), y)
    offset = _loaded(
        shift, shift_batch, shift_token, shift_per, shift_step, batch, token, there, column, inside, y, SHIFT_SHARED
    )
    if CAST_SHIFT:
        offset = offset.to(own.dtype).to(tl.float32)
    value = value + offset
    tl.store(y + batch * y_batch + token * y_token + column, value.to(y.dtype.element_ty), there & inside)


def tile_of(op: str, x: Tensor, tokens: int, width: int, elements: int) -> Configuration:
    """Return the tile as for any kernel over tokens, without rows that would contain no token."""
    own = chosen(op, width, elements, x.element_size(), x.device)
    fewer = power_of_two(tokens)
    return own if own.rows <= fewer else Configuration(fewer, own.block, own.warps)


def _launch(
    x: Tensor, scale: Tensor | None, shift: Tensor, y: Tensor, sizes: tuple[int, int, int], constant: float | None,
    between: tuple[int, int, int, int], scale_rows: ModulationLayout, shift_rows: ModulationLayout, elements: int,
    rounds_once: bool = False,
) -> None:  # fmt: skip
    """Launch with the roundings that follow from dtypes and axes (see `policy.h`), or with the last one only.
    `elements` are those of all launches of a call."""
    batches, tokens, width = sizes
    if elements == 0:
        return
    op = "broadcast_add" if scale is None else "residual_gate" if constant is None else "scale_shift"
    shape = tile_of(op, x, tokens, width, elements)
    is_half = x.dtype != torch.float32 and not rounds_once
    number = is_half and scale is not None and scale.ndim == 0
    rounds = is_half and scale is not None and (scale.ndim == 0 or scale.dtype == x.dtype)
    grid = (triton.cdiv(width, shape.block) * triton.cdiv(tokens, shape.rows) * batches,)
    with torch.cuda.device_of(x):
        modulate[grid](
            x, shift if scale is None else scale, shift, y, tokens, width, 0.0 if constant is None else constant,
            *between,
            scale_rows.batch_step, scale_rows.token_step, scale_rows.tokens_per_row, scale_rows.channel_step,
            shift_rows.batch_step, shift_rows.token_step, shift_rows.tokens_per_row, shift_rows.channel_step,
            SCALE=scale is not None, CONSTANT=constant is not None,
            SCALE_SHARED=scale_rows.token_step == 0, SHIFT_SHARED=shift_rows.token_step == 0,
            ROUND_PRODUCT=rounds, CAST_SCALE=number and scale is not None and scale.dtype != x.dtype,
            CAST_SHIFT=rounds and shift.ndim == 0 and shift.dtype != x.dtype,
            ROWS=shape.rows, BLOCK=shape.block, num_warps=shape.warps, **OPTIONS,
        )  # fmt: skip


def modulated(
    x: Tensor, scale: Tensor, shift: Tensor, constant: float | None, y: Tensor, rounds_once: bool = False
) -> Tensor:
    """Compute x * (constant + scale) + shift, or x * scale + shift without a constant."""
    for own, to, by, more in folded((x, y), (scale, shift)):
        assert own is not None and to is not None and by is not None and more is not None
        sizes = (own.shape[0] if own.ndim == 3 else 1, own.shape[-2], own.shape[-1])
        between = (*steps(own), *steps(to))
        rows = (layout(by, own), layout(more, own))
        _launch(own, by, more, to, sizes, constant, between, *rows, x.numel(), rounds_once)
    return y


def scale_shift(
    x: Tensor, scale: Tensor, shift: Tensor, *, scale_constant: float = 1.0, out: Tensor | None = None
) -> Tensor:
    return modulated(x, scale, shift, scale_constant, rows_like(x) if out is None else out)


def residual_gate(residual: Tensor, update: Tensor, gate: Tensor, *, out: Tensor | None = None) -> Tensor:
    return modulated(update, gate, residual, None, rows_like(residual) if out is None else out)


def broadcast_add(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    y = sum_like(a, b) if out is None else out
    if y.numel() == 0:
        return y
    own = folded_sum(a, b, y.stride())
    assert own is not None  # guaranteed by the requirements and the check of `out`
    sizes = (own.batch.size, own.token.size, own.last.size)
    between = (own.batch.x, own.token.x, own.batch.y, own.token.y)
    rows = ModulationLayout(own.batch.shift, own.token.shift, 1, own.last.shift)
    for x, shift, to in own.steps(y):
        _launch(x, None, shift, to, sizes, None, between, ModulationLayout(), rows, own.elements)
    return y
