"""Rows: spans of memory at places of their own, written and compared by one kernel for all of them.

Contents go into slots, and after a block every slot is held against them again. Both touch all of a block's inputs, so
they run at the memory's speed: whole words, as wide as the places allow, and no intermediate results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
WARPS = 8
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


@triton.jit  # type: ignore[untyped-decorator]
def _copy(memory, starts, source, row_words, words, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    part, row = tl.program_id(0), tl.program_id(1)
    place = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < words
    start = tl.multiple_of(tl.load(starts + row), ALIGNED)
    tl.store(memory + start + place, tl.load(source + row.to(tl.int64) * row_words + place, inside, 0), inside)


@triton.jit  # type: ignore[untyped-decorator]
def _compare(memory, starts, source, row_words, words, found, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    part, row = tl.program_id(0), tl.program_id(1)
    place = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < words
    start = tl.multiple_of(tl.load(starts + row), ALIGNED)
    held = tl.load(memory + start + place, inside, 0)
    wanted = tl.load(source + row.to(tl.int64) * row_words + place, inside, 0)
    if tl.max((held != wanted).to(tl.int32), 0) != 0:
        tl.store(found, 1)  # whoever finds something writes the same


class Rows:
    """Spans of one length in one piece of memory, at places in bytes."""

    def __init__(self, memory: Tensor, starts: Sequence[int], length: int) -> None:
        self.count, self.length = len(starts), length
        common = math.gcd(length, *starts)
        self._size = next(size for size in _WORDS if common % size == 0)
        self._memory = memory[: memory.numel() // self._size * self._size].view(_WORDS[self._size])
        words = [start // self._size for start in starts]
        self._aligned = 16 if math.gcd(*words) % 16 == 0 else 1
        self._starts = torch.tensor(words, dtype=torch.int64, device=memory.device)

    @property
    def _grid(self) -> tuple[int, int]:
        return triton.cdiv(self.length // self._size, BLOCK), self.count

    def write(self, source: Tensor) -> None:
        """`source`: a row each, contiguous."""
        if self.count and self.length:
            words, row_words = self._words_of(source)
            _copy[self._grid](
                self._memory, self._starts, words, row_words, self.length // self._size, ALIGNED=self._aligned,
                BLOCK=BLOCK, num_warps=WARPS,
            )  # fmt: skip

    def compare(self, source: Tensor, found: Tensor) -> None:
        """Sets `found` where a row is not as in `source`: one each, or one for all of them."""
        if self.count and self.length:
            words, row_words = self._words_of(source)
            _compare[self._grid](
                self._memory, self._starts, words, row_words, self.length // self._size, found, ALIGNED=self._aligned,
                BLOCK=BLOCK, num_warps=WARPS,
            )  # fmt: skip

    def _words_of(self, source: Tensor) -> tuple[Tensor, int]:
        words = source.contiguous().view(-1).view(torch.uint8).view(_WORDS[self._size])
        return words, 0 if words.numel() * self._size == self.length else self.length // self._size
