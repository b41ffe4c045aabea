"""Arguments of LTX-2's modulated norms: what is wrong for every implementation, and what comes out.

Modulations broadcast as torch has it, so `[S, D]` is a row per token: these ops know no `[B, D]`, and no frames.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.ops._shared.checks import broadcast_shape, check_floating, check_width, joint_shape
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.outputs import Promise, rows_like, shaped_like

PAIRS = {"rms_modulate": (("scale", "shift"),), "dual_modulate": (("scale0", "shift0"), ("scale1", "shift1"))}
TABLES = {"rms_modulate_from_table": 2, "dual_modulate_from_table": 4}  # rows: a scale and a shift for each result
MODULATIONS = tuple(name for pairs in PAIRS.values() for pair in pairs for name in pair)


def check(call: Call) -> None:
    x = call.tensors["x"]
    check_floating(call)
    check_width(x)
    if rows := TABLES.get(call.op.name):
        _check_table(call, x, rows)
    else:
        for pair in PAIRS[call.op.name]:
            joint_shape(call, ("x", *pair))


def _check_table(call: Call, x: Tensor, rows: int) -> None:
    temb, table, width = call.tensors["temb_scale_shift"], call.tensors["scale_shift_table"], x.shape[-1]
    if table.shape != (rows, width):
        raise BadArgument("scale_shift_table", f"is {list(table.shape)}, it must be [{rows}, {width}]")
    if temb.ndim != 3 or temb.shape[-1] != rows * width:
        raise BadArgument("temb_scale_shift", f"is {list(temb.shape)}, it must be [B, 1, {rows * width}]")
    leading = x.shape[:-1][-2:]
    if any(own not in (1, whole) and whole != 1 for own, whole in zip(temb.shape[1::-1], leading[::-1], strict=False)):
        raise BadArgument(
            "temb_scale_shift", f"is {list(temb.shape)}, whose rows do not broadcast with x, {list(x.shape)}"
        )


def table_rows(temb: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """The timestep's part of (scale, shift) or (scale0, shift0, scale1, shift1), as views."""
    return temb.view(*temb.shape[:2], *table.shape).unbind(2)


def sum_dtype(temb: Tensor, table: Tensor) -> torch.dtype:
    return torch.promote_types(temb.dtype, table.dtype)


def result_shapes(op: str, tensors: Sequence[Tensor]) -> list[torch.Size]:
    x = tensors[0]
    if rows := TABLES.get(op):
        return [broadcast_shape(x.shape, (*tensors[1].shape[:2], x.shape[-1]))] * (rows // 2)
    pairs = [tensors[start : start + 2] for start in range(1, len(tensors), 2)]
    return [broadcast_shape(x.shape, *(own.shape for own in pair)) for pair in pairs]


def results_like(x: Tensor, count: int) -> tuple[Tensor, ...]:
    return tuple(rows_like(x, dtype=torch.float32) for _ in range(count))


def promise_of(op: Op) -> Promise:
    def promise(tensors: Sequence[Tensor | None], device: str | None = None) -> tuple[Tensor, ...]:
        given = [own for own in tensors if own is not None]
        x, dtype = given[0], torch.promote_types(given[0].dtype, torch.float32)
        for own in given[1:]:
            dtype = torch.promote_types(dtype, own.dtype) if own.ndim else dtype  # a number does not promote
        return tuple(shaped_like(x, shape, dtype, device) for shape in result_shapes(op.name, given))

    return promise
