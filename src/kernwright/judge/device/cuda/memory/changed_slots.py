"""ChangedSlots: copies of the slots of an op that works in place, taken before the clock stops."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernwright.judge.device.problems import DeviceFull

WORD_BYTES = 8
BLOCK = 256  # words, as in copy_kernel: 2 KiB, less than the guards of a slot
WARPS = 4


@triton.jit  # type: ignore[untyped-decorator]
def _copy_cyclic(target, source, words, source_words, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copy the source repeatedly until the target is full. The source has at least BLOCK words and an even number."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = start + lane < words
    place = start % source_words + lane
    place = tl.where(place < source_words, place, place - source_words)
    place = tl.max_contiguous(tl.multiple_of(place, 2), 2)
    tl.store(target + start + lane, tl.load(source + place, inside), inside)


class ChangedSlots:
    """A buffer for the slots of one side of a row at a time.

    All sides have slots of the same size, but different numbers of them, because a slow side makes fewer calls per
    block. While the clock runs, the same number of bytes is copied for every side: a side with fewer slots has them
    copied repeatedly, up to the size of the side with most. So the copy takes the same time for all sides and is
    subtracted with the overhead of the protocol, except for small differences by caching. Copies of different size
    would distort the time of a row with 8,192 tokens by as much as a call.

    Whole slots are copied, including unchanged inputs, because one contiguous copy is faster than many parts.
    """

    def __init__(self, device: str) -> None:
        self._max_size = 0
        self._buffer = torch.empty(0, dtype=torch.uint8, device=device)

    def begin(self) -> None:
        """Free the buffer before the next row, which has slots of another size."""
        self._max_size = 0
        self._buffer = self._buffer[:0].clone()

    def expect(self, size: int) -> None:
        """Allocate memory for a side with this many bytes of slots, while the clock does not run."""
        self._max_size = max(self._max_size, size)
        if self._buffer.numel() < self._max_size:
            self._buffer = self._buffer[:0].clone()  # frees the old buffer before the new one is allocated
            try:
                self._buffer = torch.empty(self._max_size, dtype=torch.uint8, device=self._buffer.device)
            except torch.OutOfMemoryError:
                raise DeviceFull(
                    f"no {self._max_size / 2**30:.1f} GiB on the GPU for a copy of a row's inputs",
                    "free the GPU's memory, or choose smaller rows with --rows",
                ) from None

    def secure_block(self, slots: Tensor) -> Tensor:
        """Copy all slots of a side and return the copy."""
        self.expect(slots.numel())
        words, source_words = self._max_size // WORD_BYTES, slots.numel() // WORD_BYTES
        _copy_cyclic[triton.cdiv(words, BLOCK),](
            self._buffer.view(torch.int64), slots.view(torch.int64), words, source_words, BLOCK=BLOCK, num_warps=WARPS
        )
        return self._buffer[: slots.numel()]

    def secure_some(self, slots: Tensor, pitch: int, order: Sequence[int]) -> Tensor:
        """Copy the given slots of a side and return the copy, in which other slots are undefined.

        An empty block copies one slot, so that its overhead is that of a block with a call.
        """
        self.expect(slots.numel())
        for slot in order or [0]:
            span = slice(slot * pitch, (slot + 1) * pitch)
            self._buffer[span].copy_(slots[span])
        return self._buffer[: slots.numel()]
