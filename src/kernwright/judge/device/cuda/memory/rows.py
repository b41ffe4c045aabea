"""Rows: spans of memory at scattered offsets, all written or compared by one kernel.

Contents are written into slots before a block and compared with the slots after it. Both touch all inputs of a block,
so they must run at memory bandwidth: with words as wide as the alignment allows and without intermediate tensors.
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
    memory, numbers, pitch, offset, source, row_words, words, differs, ALIGNED: tl.constexpr, BLOCK: tl.constexpr
):
    part, row = tl.program_id(0), tl.program_id(1)
    place = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < words
    start = tl.multiple_of(tl.load(numbers + row) * pitch + offset, ALIGNED)
    value = tl.load(memory + start + place, inside, 0)
    expected = tl.load(source + row.to(tl.int64) * row_words + place, inside, 0)
    if tl.max((value != expected).to(tl.int32), 0) != 0:
        tl.store(differs, 1)  # all programs that store write the same value, so the race is harmless


def on_device(numbers: Sequence[int], device: torch.device) -> Tensor:
    """Copy numbers to the device from pinned memory. A copy from pageable memory would wait for all queued work."""
    on_host = torch.tensor(numbers, dtype=torch.int64)
    return (on_host.pin_memory() if device.type == "cuda" else on_host).to(device, non_blocking=True)


class ScatteredRows:
    """Spans of one length in one buffer, at given byte offsets or at the same offset of numbered slots."""

    def __init__(self, memory: Tensor, starts: Sequence[int], length: int) -> None:
        self._set_memory(memory, length, math.gcd(*starts))
        words = [start // self._size for start in starts]
        self._numbers, self._pitch, self._offset = on_device(words, memory.device), 1, 0

    @classmethod
    def in_slots(cls, memory: Tensor, slots: Tensor, pitch: int, offset: int, length: int) -> ScatteredRows:
        """Return the rows of numbered slots. `slots` is on the device and shared by the tensors of a row."""
        rows = cls.__new__(cls)
        rows._set_memory(memory, length, math.gcd(pitch, offset))
        rows._numbers, rows._pitch, rows._offset = slots, pitch // rows._size, offset // rows._size
        return rows

    def _set_memory(self, memory: Tensor, length: int, alignment: int) -> None:
        """View the memory as words, as wide as the common alignment of all offsets allows."""
        self.length = length
        self._size = next(size for size in _WORDS if math.gcd(alignment, length) % size == 0)
        self._memory = memory[: memory.numel() // self._size * self._size].view(_WORDS[self._size])
        self._aligned = 16 if alignment // self._size % 16 == 0 else 1

    @property
    def count(self) -> int:
        return self._numbers.numel()

    @property
    def _grid(self) -> tuple[int, int]:
        return triton.cdiv(self.length // self._size, BLOCK), self.count

    def write(self, source: Tensor) -> None:
        """Write the rows of a contiguous source."""
        if self.count and self.length:
            words, row_words = self._words_of(source)
            _copy[self._grid](
                self._memory, self._numbers, self._pitch, self._offset, words, row_words, self.length // self._size,
                ALIGNED=self._aligned, BLOCK=BLOCK, num_warps=WARPS,
            )  # fmt: skip

    def compare(self, source: Tensor, differs: Tensor) -> None:
        """Set `differs` to 1 if a row differs from the source, which has one row for each or one for all."""
        if self.count and self.length:
            words, row_words = self._words_of(source)
            _compare[self._grid](
                self._memory, self._numbers, self._pitch, self._offset, words, row_words, self.length // self._size,
                differs, ALIGNED=self._aligned, BLOCK=BLOCK, num_warps=WARPS,
            )  # fmt: skip

    def _words_of(self, source: Tensor) -> tuple[Tensor, int]:
        words = source.contiguous().view(-1).view(torch.uint8).view(_WORDS[self._size])
        return words, 0 if words.numel() * self._size == self.length else self.length // self._size
