"""Calls of norm_scale_shift and its residual twin with the contract `exact`. On a GPU they must have torch's own bits.
A CPU norms in another order, so there Triton's interpreter and emulated CUDA kernels are compared with a twin that
follows the GPU's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import mixed_residual_cases
import numpy as np
import torch
import torch.nn.functional as F
from norm_modulation_cases import BF16, FP16, FP32, Case, both
from same_bits import hold_bits
from token_cases import arguments
from torch import Tensor

from kernwright.core.registry import shipped_ops
from kernwright.judge.numerics.inputs import draw_inputs
from kernwright.tasks.catalog import find_task
from kernwright.tasks.workload import Workload

FAMILY = "norm_modulation"


def cases() -> list[Case]:
    found: list[Case] = []
    for layout in ("one", "channel", "batch", "token", "frame", "column", "expanded", "chunk"):
        found += both(f"exact {layout} modulation", scale=(layout, BF16), shift=(layout, BF16))
    for dtype in (BF16, FP16, FP32):
        rows = {"scale": ("row", dtype), "shift": ("row", dtype)}
        found += both(f"exact {dtype}", dtype=dtype, width=516, tokens=3, frames=1, offset=3.0, **rows)
        wide = {"scale": ("token", FP32), "shift": ("token", FP32)}
        found += both(f"exact {dtype} float rows", dtype=dtype, width=200, tokens=3, frames=1, **wide)
        mixed = {"scale": ("row", FP32), "shift": ("token", FP16)}
        found += both(f"exact {dtype} mixed", dtype=dtype, width=100, **mixed)
        found += both(f"exact {dtype} mixed otherwise", dtype=dtype, scale=("row", FP16), shift=("one", BF16))
        found += both(f"exact {dtype} number", dtype=dtype, scale=("number", dtype), shift=("number", dtype))
    found += both("exact gaps", gaps=True, width=96)
    found += both("exact frame and channel", scale=("frame", FP32), shift=("channel", BF16))
    found += both("exact frames of two lengths", tokens=6, frames=3, scale=("frame", BF16), shift=("token", BF16))
    found += both("exact flat", flat=True, batch=1, scale=("channel", BF16), shift=("flat tokens", BF16))
    found += both("exact width 4", width=4)
    found += both("exact width 8196", width=8196, tokens=1, batch=1, frames=1)
    found += both("exact no tokens", tokens=0, frames=1, scale=("row", BF16))
    found.append(Case("exact residual without gate", residual=True, width=1028, tokens=2))
    return found


def shape_cases() -> list[Case]:
    """Return cases that reach each CUDA kernel that holds a token."""
    found: list[Case] = []
    full = (1536, 2048, 3072, 4096, 5120, 6144, 8192)
    for dtype in (BF16, FP16, FP32):
        for width in (*full, 400, 900, 1540, 3076, 6000):
            rows = {"scale": ("row", dtype), "shift": ("row", dtype)}
            found += both(f"exact {dtype} held {width}", dtype=dtype, width=width, tokens=1, batch=1, frames=1, **rows)
        for layout in ("row", "token"):
            for width in (3072, 5120, 1540, 3076, 6000):
                rows = {"scale": (layout, FP32), "shift": (layout, FP32)}
                name = f"exact {dtype} float {layout}s {width}"
                found += both(name, dtype=dtype, width=width, tokens=2, batch=1, frames=1, **rows)
        rows = {"scale": ("token", dtype), "shift": ("token", dtype)}
        found += both(f"exact {dtype} tokens 5120", dtype=dtype, width=5120, tokens=2, batch=1, frames=1, **rows)
    return found


CUDA_CASES = {case.name: case for case in (*cases(), *shape_cases())}
# The cases for Triton's interpreter, in which a case takes half a second.
INTERPRETED = (
    "exact frame modulation",
    "exact torch.float32 float rows",
    "residual exact torch.bfloat16 mixed",
    "residual exact gaps",
    "exact torch.float16",
    "exact no tokens",
)
CASES = {name: CUDA_CASES[name] for name in INTERPRETED} | {
    "residual in float32": mixed_residual_cases.Plain("residual in float32", gate=("row", BF16), width=516, tokens=3)
}  # Cases for Triton alone.
# A number without an axis is cast to x's dtype before its use only on a GPU.
GPU_CASES = CUDA_CASES | {
    case.name: case
    for dtype in (BF16, FP16)
    for case in both(f"exact {dtype} cast number", dtype=dtype, scale=("number", FP32), shift=("number", FP32))
}

Part = tuple[np.ndarray, np.ndarray, np.ndarray]  # mean, sum of squares about it, and count of each channel


def met(own: Part, other: Part) -> Part:
    """Merge two parts into the first one. Extended precision and one rounding emulate a fused product."""
    apart, count = own[0] - other[0], other[2] + own[2]
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.float32(1) / count
        of_other, of_own = other[2] * one, own[2] * one
        mean = fused(of_other, other[0], of_own * own[0])
        squares = fused(apart * apart * other[2], of_own, other[1] + own[1])
    return np.where(count > 0, mean, np.float32(0)), np.where(count > 0, squares, np.float32(0)), count


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (np.longdouble(a) * np.longdouble(b) + np.longdouble(c)).astype(np.float32)  # type: ignore[no-any-return]


def halves(part: Part, apart: int) -> tuple[Part, Part]:
    first, second = (tuple(own[..., place] for own in part) for place in (slice(None, apart), slice(apart, None)))
    return first, second  # type: ignore[return-value]


def normed_in_torchs_order(x: Tensor, shape: Any, weight: None = None, bias: None = None, eps: float = 1e-5) -> Tensor:
    """Compute F.layer_norm with a GPU's distribution over threads."""
    width = x.shape[-1]
    groups = F.pad(x.float(), (0, -width % 512)).unflatten(-1, (-1, 128, 4)).numpy()
    mean, squares, count = (np.zeros((*groups.shape[:-3], 128), np.float32) for _ in range(3))
    for turn in range(groups.shape[-3]):
        there = (turn * 128 + np.arange(128)) * 4 < width
        for channel in range(4):
            value, more = groups[..., turn, :, channel], count + np.float32(1)
            apart = value - mean
            moved = fused(apart, np.float32(1) / more, mean)
            squares = np.where(there, fused(apart, value - moved, squares), squares)
            mean, count = np.where(there, moved, mean), np.where(there, more, count)
    lanes: Part = tuple(own.reshape(*own.shape[:-1], 4, 32) for own in (mean, squares, count))  # type: ignore[assignment]
    for apart_by in (16, 8, 4, 2, 1):
        lanes = met(*halves(lanes, apart_by))
    warps: Part = tuple(own[..., 0] for own in lanes)  # type: ignore[assignment]
    for apart_by in (2, 1):
        warps = met(*halves(warps, apart_by))
    inverse = 1 / np.sqrt(warps[1] / np.float32(width) + np.float32(eps))  # computed as in the interpreter
    return (torch.from_numpy(inverse) * (x.float() - torch.from_numpy(warps[0]))).to(x.dtype)


def hold_to_twin(case: Case, run: Callable[..., Any]) -> None:
    given = arguments(case)
    with mock.patch.object(F, "layer_norm", normed_in_torchs_order):
        expected = shipped_ops()[case.op].reference(*given, **case.scalars)
    hold_bits(case.name, run(*given, **case.scalars), expected)


def verify(case: Case, run: Callable[..., Any], device: str = "cpu") -> None:
    if device == "cpu":
        from kernwright.ops.norm_modulation import exact_triton

        hold_to_twin(case, getattr(exact_triton, case.op))
        return
    given = arguments(case, device)
    expected = shipped_ops()[case.op].reference(*given, **case.scalars)
    hold_bits(case.name, run(*given, **case.scalars, contract="exact"), expected)


def rows_of(row_set: str) -> list[Workload]:
    """Return the rows of the task for which exact kernels exist: LayerNorm without weight and bias."""
    rows = find_task("norm_scale_shift").select(row_set)
    return [row for row in rows if row.scalars["norm_type"] == "layer" and "weight" not in row.inputs]


def hold_row(row: Workload, distribution: str, run: Callable[..., Any]) -> None:
    """On a GPU, compare a row with torch's own bits, with contents as the judge draws them."""
    op, generator = shipped_ops()[row.op], torch.Generator("cuda").manual_seed(7)
    drawn = draw_inputs(
        op, row, distribution, lambda own: torch.randn(own.shape, generator=generator, device="cuda"), generator
    )
    given = [drawn.get(parameter.name) for parameter in op.tensor_parameters]
    expected = op.reference(*given, **row.scalars)
    found = run(*given, **row.scalars, contract="exact")
    hold_bits(row.id, found, expected)
