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
def _copy(memory, numbers, pitch, offset, source, row_words, words, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    part, row = tl.program_id(0), tl.program_id(1)
    place = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < words
    start = tl.multiple_of(tl.load(numbers + row) * pitch + offset, ALIGNED)
    tl.store(memory + start + place, tl.load(source + row.to(tl.int64) * row_words + place, inside, 0), inside)


@triton.jit  # type: ignore[untyped-decorator]
def _compare(  # type: ignore[no-untyped-def]
    memory, numbers, pitch, offset, source, row_words, words, found, ALIGNED: tl.constexpr, BLOCK: tl.constexpr
):
    part, row = tl.program_id(0), tl.program_id(1)
    place = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < words
    start = tl.multiple_of(tl.load(numbers + row) * pitch + offset, ALIGNED)
    held = tl.load(memory + start + place, inside, 0)
    wanted = tl.load(source + row.to(tl.int64) * row_words + place, inside, 0)
    if tl.max((held != wanted).to(tl.int32), 0) != 0:
        tl.store(found, 1)  # whoever finds something writes the same


def on_device(numbers: Sequence[int], device: torch.device) -> Tensor:
    """Without a wait for all that the device was asked for before: a plain copy from the host's memory is one."""
    held = torch.tensor(numbers, dtype=torch.int64)
    return (held.pin_memory() if device.type == "cuda" else held).to(device, non_blocking=True)


class ScatteredRows:
    """Spans of one length in one piece of memory: at places of their own, in bytes, or at the same place of numbered
    slots."""

    def __init__(self, memory: Tensor, starts: Sequence[int], length: int) -> None:
        self._hold(memory, length, math.gcd(*starts))
        words = [start // self._size for start in starts]
        self._numbers, self._pitch, self._offset = on_device(words, memory.device), 1, 0

    @classmethod
    def in_slots(cls, memory: Tensor, slots: Tensor, pitch: int, offset: int, length: int) -> ScatteredRows:
        """`slots`: their numbers, on the device, where a row's tensors share them."""
        own = cls.__new__(cls)
        own._hold(memory, length, math.gcd(pitch, offset))
        own._numbers, own._pitch, own._offset = slots, pitch // own._size, offset // own._size
        return own

    def _hold(self, memory: Tensor, length: int, common: int) -> None:
        """`common`: what divides all places, from which follows how wide a word may be."""
        self.length = length
        self._size = next(size for size in _WORDS if math.gcd(common, length) % size == 0)
        self._memory = memory[: memory.numel() // self._size * self._size].view(_WORDS[self._size])
        self._aligned = 16 if common // self._size % 16 == 0 else 1

    @property
    def count(self) -> int:
        return self._numbers.numel()

    @property
    def _grid(self) -> tuple[int, int]:
        return triton.cdiv(self.length // self._size, BLOCK), self.count

    def write(self, source: Tensor) -> None:
        """`source`: a row each, contiguous."""
        if self.count and self.length:
            words, row_words = self._words_of(source)
            _copy[self._grid](
                self._memory, self._numbers, self._pitch, self._offset, words, row_words, self.length // self._size,
                ALIGNED=self._aligned, BLOCK=BLOCK, num_warps=WARPS,
            )  # fmt: skip

    def compare(self, source: Tensor, found: Tensor) -> None:
        """Sets `found` where a row is not as in `source`: one each, or one for all of them."""
        if self.count and self.length:
            words, row_words = self._words_of(source)
            _compare[self._grid](
                self._memory, self._numbers, self._pitch, self._offset, words, row_words, self.length // self._size,
                found, ALIGNED=self._aligned, BLOCK=BLOCK, num_warps=WARPS,
            )  # fmt: skip

    def _words_of(self, source: Tensor) -> tuple[Tensor, int]:
        words = source.contiguous().view(-1).view(torch.uint8).view(_WORDS[self._size])
        return words, 0 if words.numel() * self._size == self.length else self.length // self._size
