"""ChangedSlots: where the judge puts the slots of an op that works in place, before its clock stops."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernwright.judge.device.problems import DeviceFull

WORD_BYTES = 8
BLOCK = 256  # words, as copy_kernel has them: 2 KiB, less than a slot's guards
WARPS = 4


@triton.jit  # type: ignore[untyped-decorator]
def _copy_round(target, source, words, source_words, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Begins again where the source ends, which is no shorter than a block and ends with a whole vector."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    own = tl.arange(0, BLOCK)
    inside = start + own < words
    place = start % source_words + own
    place = tl.where(place < source_words, place, place - source_words)
    place = tl.max_contiguous(tl.multiple_of(place, 2), 2)
    tl.store(target + start + own, tl.load(source + place, inside), inside)


class ChangedSlots:
    """Of all sides of a row; one at a time.

    Sides have slots of one size, but not as many of them: a chain of kernels is called less often in a block than what
    it is held against. What is copied while the clock runs is as much for each, though: whoever has fewer slots has
    them copied again, until it is as much as of the side that has most. So it takes every side as long, and goes off
    with the protocol's own time; but for a little where one side's slots lie in the cache and another's do not. Were it
    each side's own, the time of 8,192 tokens would be off by as much as a call.

    Slots are copied whole, with inputs that stay: what is changed lies apart, and by itself would come more slowly.
    """

    def __init__(self, device: str) -> None:
        self._most = 0
        self._buffer = torch.empty(0, dtype=torch.uint8, device=device)

    def begin(self) -> None:
        """Another row, other slots."""
        self._most = 0
        self._buffer = self._buffer[:0].clone()

    def expect(self, size: int) -> None:
        """A side of the row has so many bytes of slots. Memory is made ready here, while no clock runs."""
        self._most = max(self._most, size)
        if self._buffer.numel() < self._most:
            self._buffer = self._buffer[:0].clone()  # the old one goes first
            try:
                self._buffer = torch.empty(self._most, dtype=torch.uint8, device=self._buffer.device)
            except torch.OutOfMemoryError:
                raise DeviceFull(
                    f"no {self._most / 2**30:.1f} GiB on the GPU for a copy of a row's inputs",
                    "free the GPU's memory, or choose smaller rows with --rows",
                ) from None

    def secure_block(self, slots: Tensor) -> Tensor:
        """All slots of a side as they are now."""
        self.expect(slots.numel())
        words, own_words = self._most // WORD_BYTES, slots.numel() // WORD_BYTES
        _copy_round[triton.cdiv(words, BLOCK),](
            self._buffer.view(torch.int64), slots.view(torch.int64), words, own_words, BLOCK=BLOCK, num_warps=WARPS
        )
        return self._buffer[: slots.numel()]

    def secure_some(self, slots: Tensor, pitch: int, order: Sequence[int]) -> Tensor:
        """Some slots of a side as they are now; what the others are does not count. Of none of them, as much as of one:
        so long it takes around no call, too."""
        self.expect(slots.numel())
        for slot in order or [0]:
            own = slice(slot * pitch, (slot + 1) * pitch)
            self._buffer[own].copy_(slots[own])
        return self._buffer[: slots.numel()]
