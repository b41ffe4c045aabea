"""Norm, scale and shift in Triton: plain, with a gated residual, and with a choice of two modulations per token.

They run on a GPU without nvcc.

Contract: close. The input of the norm is rounded to x's dtype, as it is returned. Statistics are in float32 and centred
before they are squared. One chain in float32 with one rounding follows, whereas the eager chain rounds after each step.

Bytes per token: x (and residual) is read once and y (their sum, the chosen gate) is written once, up to a width of
HELD. A wider token is read three times, the second and third time from the cache. Modulations that tokens share stay in
the cache. If there are two sets, a token reads only its own set. Share of a copy's bandwidth: not measured yet.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernwright.ops._shared.checks import broadcast_shape
from kernwright.ops._shared.folding import folded
from kernwright.ops._shared.modulation_layout import aligned
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
def _value(given, column, mask):
    """Return the normed values, rounded to the returned dtype and widened again unless ROUNDS is off."""
    x, residual, gate, ROUNDS = given
    own = tl.load(x + column, mask, 0.0)
    value = own.to(tl.float32)
    if residual is not None:
        if gate is not None:
            value *= read(gate, column, mask)
        value += wide(residual, column, mask, x)
        if ROUNDS:
            value = value.to(own.dtype).to(tl.float32)
    return value


@triton.jit
def _of_choice(first, second, picked, column, mask):
    """Return the first set's value, or with two sets the value of the token's own set."""
    if second is None:
        value = read(first, column, mask)
    else:
        value = tl.where(picked, read(second, column, mask & picked), read(first, column, mask & (picked == 0)))
    return value


@triton.jit
def _finish(value, mean, inverse, weight, bias, sets, picked, outputs, column, there, width):
    """Norm and modulate one piece, and store all results."""
    scale, shift, scale1, shift1, gate0, gate1 = sets
    y, total, gate_out, stores_gate = outputs
    inside = column < width
    mask = there & inside
    if total is not None:
        write(total, column, value, mask)
    normed = affine((value - mean) * inverse, weight, bias, column, inside)
    by = _of_choice(scale, scale1, picked, column, mask)
    to = _of_choice(shift, shift1, picked, column, mask)
    write(y, column, normed * (1.0 + by) + to, mask)
    if gate_out is not None:
        write(gate_out, column, _of_choice(gate0, gate1, picked, column, mask), stores_gate & inside)


@triton.jit
def _is_first_of_row(tokens, batch, token):
    _, batch_step, token_step = tokens
    return ((batch == 0) | (batch * batch_step != 0)) & ((token == 0) | (token * token_step != 0))


@triton.jit
def norm_modulate(
    x, residual, gate, scale, shift, weight, bias, scale1, shift1, gate0, gate1, index, y, total, gate_out,
    rows, tokens, width, eps,
    RMS: tl.constexpr, ROUNDS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, HELD_WHOLE: tl.constexpr,
):  # fmt: skip
    """Norm ROWS tokens per program. With `HELD_WHOLE` a token fits BLOCK; otherwise it is processed in pieces of BLOCK.

    ROUNDS: the input of the norm is the sum as it is returned, in x's dtype, and not the float32 sum. `scale1`,
    `shift1`, `gate0`, `gate1`, `index` and `gate_out` are given together: any index except 0 picks the second set.
    """
    batch, token, there = places(rows, tokens, ROWS)
    given = (
        token_start(x, batch, token),
        residual if residual is None else token_start(residual, batch, token),
        gate if gate is None else row_start(gate, batch, token),
        ROUNDS,
    )
    outputs = (
        token_start(y, batch, token),
        total if total is None else token_start(total, batch, token),
        gate_out if gate_out is None else token_start(gate_out, batch, token),
        # If several tokens share a row, the first of them stores it.
        there if gate_out is None else there & _is_first_of_row(gate_out, batch, token),
    )
    sets = (
        row_start(scale, batch, token),
        row_start(shift, batch, token),
        scale1 if scale1 is None else row_start(scale1, batch, token),
        shift1 if shift1 is None else row_start(shift1, batch, token),
        gate0 if gate0 is None else row_start(gate0, batch, token),
        gate1 if gate1 is None else row_start(gate1, batch, token),
    )
    picked = there
    if index is not None:
        picked = tl.load(row_start(index, batch, token)[0], there, 0) != 0
    if HELD_WHOLE:
        column = tl.arange(0, BLOCK)[None, :]
        mask = there & (column < width)
        value = _value(given, column, mask)
        mean, inverse = held_statistics(value, mask, width, eps, RMS)
        _finish(value, mean, inverse, weight, bias, sets, picked, outputs, column, there, width)
    else:
        mean, inverse = streamed_statistics(_value, given, there, width, eps, RMS, ROWS, BLOCK)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            # Computed again and not read back, because a thread must not read what another thread stored.
            value = _value(given, column, there & (column < width))
            _finish(value, mean, inverse, weight, bias, sets, picked, outputs, column, there, width)


def launch(
    x: Tensor, residual: Tensor | None, gate: Tensor | None, scale: Tensor, shift: Tensor, weight: Tensor | None,
    bias: Tensor | None, norm_type: str, eps: float, y: Tensor, total: Tensor | None = None,
    second: tuple[Tensor, Tensor, Tensor, Tensor, Tensor] | None = None, gate_out: Tensor | None = None,
    rounds: bool = True,
) -> None:  # fmt: skip
    """Launch the kernel. `second` has the second set's scale and shift, both gates, and the index."""
    if x.numel() == 0:
        return
    op = f"{'' if residual is None else 'residual_'}norm_scale_shift{'' if second is None else '_select'}"
    shape, more = shape_of(op, x), second and (*second[:-1], aligned(second[-1], 2)[..., None])
    with torch.cuda.device_of(x):
        for own, before, given, gates, to, *rows in folded(
            (x, residual, total, gate_out, y), (gate, scale, shift, *(more or (None,) * 5))
        ):
            assert own is not None
            by = [rows_of(row, own) for row in rows]
            norm_modulate[(triton.cdiv(own.numel() // own.shape[-1], shape.rows),)](
                tokens_of(own), tokens_of(before), *by[:3], weight, bias, *by[3:], tokens_of(to), tokens_of(given),
                tokens_of(gates), own.numel() // own.shape[-1], own.shape[-2], own.shape[-1], eps,
                RMS=norm_type == "rms", ROUNDS=rounds, **shape.options,
            )  # fmt: skip


def norm_scale_shift(
    x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
    *, norm_type: str = "layer", eps: float = 1e-6, out: Any = None,
) -> Tensor:  # fmt: skip
    y = rows_like(x) if out is None else out
    launch(x, None, None, scale, shift, weight, bias, norm_type, eps, y)
    return y


def residual_norm_scale_shift(
    x: Tensor, residual: Tensor, scale: Tensor, shift: Tensor, gate: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None,
    *, norm_type: str = "layer", eps: float = 1e-6, out: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    y, total = (rows_like(x), rows_like(x)) if out is None else out
    launch(x, residual, gate, scale, shift, weight, bias, norm_type, eps, y, total)
    return y, total


def _chosen_gate(x: Tensor, index: Tensor, gate0: Tensor, gate1: Tensor) -> Tensor:
    """Return an uninitialized gate, of one row where all tokens or all batch entries pick one."""
    shape = broadcast_shape((*aligned(index, 2).shape, 1), gate0[:, None, :].shape, gate1[:, None, :].shape)
    return torch.empty(shape, dtype=torch.promote_types(gate0.dtype, gate1.dtype), device=x.device)


def norm_scale_shift_select(
    x: Tensor, scale0: Tensor, shift0: Tensor, gate0: Tensor, scale1: Tensor, shift1: Tensor, gate1: Tensor,
    index: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-6, out: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    y, gate_out = out or (rows_like(x), _chosen_gate(x, index, gate0, gate1))
    second = (scale1, shift1, gate0, gate1, index)
    gates = gate_out.expand(x.shape)
    launch(x, None, None, scale0, shift0, weight, bias, "layer", eps, y, None, second, gates)
    return y, gate_out


def residual_norm_scale_shift_select(
    x: Tensor, residual: Tensor, residual_gate: Tensor, scale0: Tensor, shift0: Tensor, gate0: Tensor,
    scale1: Tensor, shift1: Tensor, gate1: Tensor, index: Tensor, weight: Tensor | None = None,
    bias: Tensor | None = None, *, eps: float = 1e-6, out: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y, total, gate_out = out or (rows_like(x), rows_like(x), _chosen_gate(x, index, gate0, gate1))
    second = (scale1, shift1, gate0, gate1, index)
    gates = gate_out.expand(x.shape)
    launch(x, residual, residual_gate, scale0, shift0, weight, bias, "layer", eps, y, total, second, gates)
    return y, total, gate_out
