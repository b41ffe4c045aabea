"""Lane: one call's inputs brought, and its outputs looked at, without a kernel of the judge's.

A kernel of the judge's makes the GPU change from the worker's context to the judge's and back: some 150 us each way,
with a long tail, which is more than most calls take by themselves. Copies between the host and the device run on
engines of their own, and the worker's context stays where it is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.judge.system.cuda_driver import RowsToHost, settle, start_to_device

PIECES, PIECE_BYTES = 64, 64
MOST_LOOKED_AT = 16  # tensors of a call
_secret = random.SystemRandom()


@dataclass(frozen=True)
class Pieces:
    """Pieces of a span of memory, the same step apart. Nobody can foresee which step, nor where the first one lies."""

    first: int
    step: int
    count: int
    width: int

    @classmethod
    def of(cls, size: int) -> Pieces:
        width = min(PIECE_BYTES, size)
        count = max(1, min(PIECES, size // max(1, width)))
        widest = max(1, (size - width) // max(1, count - 1))
        step = _secret.randint(max(width, 1, widest - widest // 8), max(width, 1, widest))
        return cls(_secret.randint(0, size - width - (count - 1) * step), step, count, width)

    def within(self, memory: Tensor, start: int) -> Tensor:
        """These of the span that starts there."""
        return memory.as_strided((self.count, self.width), (self.step, 1), start + self.first)


class Lane:
    """Pinned memory of the host's, and what was seen in outputs before the clock stopped."""

    def __init__(self, device: int) -> None:
        self.device = device
        self._images = torch.empty(0, dtype=torch.uint8)
        self._copies: list[tuple[int, int, RowsToHost]] = []
        self._seen = torch.empty((MOST_LOOKED_AT, PIECES, PIECE_BYTES), dtype=torch.uint8, pin_memory=True)

    def keep(self, slots: Sequence[Tensor]) -> list[Tensor]:
        """Copies of slots in the host's memory, from where `bring` can take them."""
        needed = sum(slot.numel() for slot in slots)
        if self._images.numel() < needed:
            self._images = torch.empty(0, dtype=torch.uint8)
            self._images = torch.empty(needed, dtype=torch.uint8, pin_memory=True)
        images, start = [], 0
        for slot in slots:
            images.append(self._images[start : start + slot.numel()].copy_(slot, non_blocking=True))
            start += slot.numel()
        torch.cuda.synchronize(self.device)
        return images

    def bring(self, image: Tensor, slot: Tensor) -> None:
        start_to_device(image.data_ptr(), slot.data_ptr(), image.numel())
        settle()

    def aim(self, sizes: Sequence[int]) -> list[Pieces]:
        """Chooses what to look at in tensors of these sizes; nothing but their addresses is left to say."""
        pieces = [Pieces.of(size) for size in sizes[:MOST_LOOKED_AT]]
        self._copies = [
            (number, piece.first, RowsToHost(seen.data_ptr(), piece.step, piece.width, piece.count))
            for number, (seen, piece) in enumerate(zip(self._seen, pieces, strict=False))
            if piece.width
        ]
        return pieces

    def glance(self, addresses: Sequence[int]) -> None:
        """To be called before the clock stops: what is not there by now was not done in time."""
        for number, first, copy in self._copies:
            copy.start(addresses[number] + first)
        settle()

    def seen(self, pieces: Sequence[Pieces]) -> list[Tensor]:
        """What the last glance saw."""
        return [
            held.flatten()[: piece.count * piece.width].view(piece.count, piece.width).clone()
            for held, piece in zip(self._seen, pieces, strict=False)
        ]
