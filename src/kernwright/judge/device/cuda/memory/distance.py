"""Distance: how far each call's output lies from its oracle, in one pass over both and with no copy in between.

Bytes an element: the output's own and four (or eight) of the oracle's.
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
MOST_RUNS = 16  # that are filled one by one


@triton.jit  # type: ignore[untyped-decorator]
def _distance(  # type: ignore[no-untyped-def]
    memory, starts, centre, furthest, squares, elements, parts, ALIGNED: tl.constexpr, BLOCK: tl.constexpr
):
    part, call = tl.program_id(0), tl.program_id(1)
    place = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < elements
    start = tl.multiple_of(tl.load(starts + call), ALIGNED)  # unknown, it would be read element by element
    own = tl.load(memory + start + place, inside, 0.0).to(centre.dtype.element_ty)
    wanted = tl.load(centre + call.to(tl.int64) * elements + place, inside, 0.0)
    away = tl.abs(own - wanted)
    away = tl.where(away == away, away, float("inf"))  # what is no number is as far as can be
    tl.store(furthest + call * parts + part, tl.max(away, 0))
    tl.store(squares + call * parts + part, tl.sum(away * away, 0))


@triton.jit  # type: ignore[untyped-decorator]
def _poison(memory, starts, words, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    part, span = tl.program_id(0), tl.program_id(1)
    place = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(memory + tl.multiple_of(tl.load(starts + span), ALIGNED) + place, -1, place < words)


def poison(memory: Tensor, spans: Sequence[tuple[int, int]]) -> None:
    """Makes spans of bytes NaN, whatever floating dtype they are read in.

    A block mostly leaves its outputs beside each other: then they are filled in a few runs, at the memory's speed and
    without a word from the host about each of them.
    """
    runs = joined(spans)
    if len(runs) <= MOST_RUNS:
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
    """Spans that touch each other are one. What lies between two may be anybody's."""
    runs: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if runs and start <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(end, runs[-1][1])
        elif start < end:
            runs.append((start, end))
    return runs


def _poison_each(memory: Tensor, starts: Sequence[int], size: int) -> None:
    """Places and size in bytes, multiples of 4."""
    words = memory.view(torch.int32)
    where = on_device([start // 4 for start in starts], memory.device)
    aligned = 16 if math.gcd(*starts) % 64 == 0 else 1
    _poison[(triton.cdiv(size // 4, BLOCK), len(starts))](words, where, size // 4, ALIGNED=aligned, BLOCK=BLOCK)


def distances(memory: Tensor, starts: Sequence[int], centre: Tensor) -> tuple[Tensor, Tensor]:
    """Largest and RMS distance per call. `starts` are places in `memory`, in elements; `centre` has the calls in front.

    Contiguous outputs only.
    """
    calls, elements = len(starts), centre[0].numel()
    parts = triton.cdiv(elements, BLOCK)
    furthest = torch.empty((calls, parts), dtype=centre.dtype, device=centre.device)
    squares = torch.empty_like(furthest)
    where = on_device(starts, centre.device)
    aligned = 16 if math.gcd(*starts) % 16 == 0 else 1
    _distance[(parts, calls)](
        memory, where, centre, furthest, squares, elements, parts, ALIGNED=aligned, BLOCK=BLOCK, num_warps=8
    )
    return furthest.amax(1), squares.sum(1, dtype=torch.float64).sqrt() / math.sqrt(elements)
