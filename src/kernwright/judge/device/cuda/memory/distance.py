"""Distance: the error of each call's output relative to its oracle, in one pass over both without a copy.

Bytes read per element: those of the output, and four or eight of the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernwright.judge.device.cuda.memory.rows import on_device

BLOCK = 4096
MAX_FILLS = 16  # runs of memory up to which each is filled by a separate kernel


@triton.jit  # type: ignore[untyped-decorator]
def _distance(  # type: ignore[no-untyped-def]
    memory, starts, centre, max_errors, squares, elements, parts, ALIGNED: tl.constexpr, BLOCK: tl.constexpr
):
    part, call = tl.program_id(0), tl.program_id(1)
    place = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < elements
    start = tl.multiple_of(tl.load(starts + call), ALIGNED)  # without a known alignment, loads are not vectorized
    value = tl.load(memory + start + place, inside, 0.0).to(centre.dtype.element_ty)
    expected = tl.load(centre + call.to(tl.int64) * elements + place, inside, 0.0)
    error = tl.abs(value - expected)
    error = tl.where(error == error, error, float("inf"))  # NaN counts as an infinite error
    tl.store(max_errors + call * parts + part, tl.max(error, 0))
    tl.store(squares + call * parts + part, tl.sum(error * error, 0))


@triton.jit  # type: ignore[untyped-decorator]
def _poison(memory, starts, words, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    part, span = tl.program_id(0), tl.program_id(1)
    place = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(memory + tl.multiple_of(tl.load(starts + span), ALIGNED) + place, -1, place < words)


def poison(memory: Tensor, spans: Sequence[tuple[int, int]]) -> None:
    """Fill spans of bytes with a pattern that is NaN in every floating-point dtype.

    The outputs of a block are usually adjacent and are then filled in a few runs at full memory bandwidth.
    """
    runs = joined(spans)
    if len(runs) <= MAX_FILLS:
        for start, end in runs:
            if (start | end) % 8:
                memory[start:end].fill_(0xFF)
            else:
                memory[start:end].view(torch.int64).fill_(-1)
        return
    by_size: dict[int, list[int]] = {}
    for start, end in spans:
        by_size.setdefault(end - start, []).append(start)
    for size, starts in by_size.items():
        if size >= 4:
            _poison_each(memory, starts, size - size % 4)


def joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans with adjacent ones joined. Memory between spans is not included, since it may be in use."""
    runs: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if runs and start <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(end, runs[-1][1])
        elif start < end:
            runs.append((start, end))
    return runs


def _poison_each(memory: Tensor, starts: Sequence[int], size: int) -> None:
    """Fill spans of one size with a single kernel. Starts and size are in bytes and multiples of 4."""
    words = memory.view(torch.int32)
    start_words = on_device([start // 4 for start in starts], memory.device)
    aligned = 16 if math.gcd(*starts) % 64 == 0 else 1
    _poison[(triton.cdiv(size // 4, BLOCK), len(starts))](words, start_words, size // 4, ALIGNED=aligned, BLOCK=BLOCK)


def distances(memory: Tensor, starts: Sequence[int], centre: Tensor) -> tuple[Tensor, Tensor]:
    """Return maximum and RMS error of each call. Outputs must be contiguous.

    `starts` are the offsets of the outputs in `memory`, in elements. The first axis of `centre` is the call.
    """
    calls, elements = len(starts), centre[0].numel()
    parts = triton.cdiv(elements, BLOCK)
    max_errors = torch.empty((calls, parts), dtype=centre.dtype, device=centre.device)
    squares = torch.empty_like(max_errors)
    offsets = on_device(starts, centre.device)
    aligned = 16 if math.gcd(*starts) % 16 == 0 else 1
    _distance[(parts, calls)](
        memory, offsets, centre, max_errors, squares, elements, parts, ALIGNED=aligned, BLOCK=BLOCK, num_warps=8
    )
    return max_errors.amax(1), squares.sum(1, dtype=torch.float64).sqrt() / math.sqrt(elements)
