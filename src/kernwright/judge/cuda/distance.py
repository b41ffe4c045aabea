"""Distance: how far each call's output lies from its oracle, in one pass over both and with no copy in between.

Bytes an element: the output's own and four (or eight) of the oracle's.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


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


def poison(memory: Tensor, starts: list[int], size: int) -> None:
    """Makes spans of memory NaN, whatever floating dtype they are read in. Places and size in bytes, multiples of 4."""
    words = memory.view(torch.int32)
    where = torch.tensor([start // 4 for start in starts], dtype=torch.int64, device=memory.device)
    aligned = 16 if all(start % 64 == 0 for start in starts) else 1
    _poison[(triton.cdiv(size // 4, BLOCK), len(starts))](words, where, size // 4, ALIGNED=aligned, BLOCK=BLOCK)


def distances(memory: Tensor, starts: list[int], centre: Tensor) -> tuple[Tensor, Tensor]:
    """Largest and RMS distance per call. `starts` are places in `memory`, in elements; `centre` has the calls in front.

    Contiguous outputs only.
    """
    calls, elements = len(starts), centre[0].numel()
    parts = triton.cdiv(elements, BLOCK)
    furthest = torch.empty((calls, parts), dtype=centre.dtype, device=centre.device)
    squares = torch.empty_like(furthest)
    where = torch.tensor(starts, dtype=torch.int64, device=centre.device)
    aligned = 16 if all(start % 16 == 0 for start in starts) else 1
    _distance[(parts, calls)](
        memory, where, centre, furthest, squares, elements, parts, ALIGNED=aligned, BLOCK=BLOCK, num_warps=8
    )
    return furthest.amax(1), squares.sum(1, dtype=torch.float64).sqrt() / math.sqrt(elements)
