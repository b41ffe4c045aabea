"""HostStaging: pinned host memory for the upload of a call's inputs and the download of pieces of its outputs.

A kernel of the judge would make the GPU switch from the worker's context to the judge's and back. A switch takes about
150 us, with a long tail, which is more than most single calls take. Copies between host and device run on the copy
engines and need no switch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.judge.system.cuda_driver import RowsToHost, settle, start_to_device

PIECES, PIECE_BYTES = 64, 64
MAX_TENSORS = 16  # outputs and changed inputs of a call that are sampled
_rng = random.SystemRandom()


@dataclass(frozen=True)
class Pieces:
    """Equidistant pieces of a span of memory, with a random distance and a random first position."""

    first: int
    step: int
    count: int
    width: int

    @classmethod
    def of(cls, size: int) -> Pieces:
        width = min(PIECE_BYTES, size)
        count = max(1, min(PIECES, size // max(1, width)))
        widest = max(1, (size - width) // max(1, count - 1))
        step = _rng.randint(max(width, 1, widest - widest // 8), max(width, 1, widest))
        return cls(_rng.randint(0, size - width - (count - 1) * step), step, count, width)

    def within(self, memory: Tensor, start: int) -> Tensor:
        """Return a view of the pieces of the span that starts at `start`."""
        return memory.as_strided((self.count, self.width), (self.step, 1), start + self.first)


class HostStaging:
    """Pinned host memory with images of slots to upload, and with downloaded pieces of outputs."""

    def __init__(self, device: int) -> None:
        self.device = device
        self._images = torch.empty(0, dtype=torch.uint8)
        self._copies: list[tuple[int, int, RowsToHost]] = []
        self._downloaded = torch.empty((MAX_TENSORS, PIECES, PIECE_BYTES), dtype=torch.uint8, pin_memory=True)

    def keep(self, slots: Sequence[Tensor]) -> list[Tensor]:
        """Return images of slots in host memory, to be uploaded later."""
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

    def upload(self, image: Tensor, slot: Tensor) -> None:
        start_to_device(image.data_ptr(), slot.data_ptr(), image.numel())
        settle()

    def choose_pieces(self, sizes: Sequence[int]) -> list[Pieces]:
        """Choose pieces of tensors of these sizes and prepare their download, which then needs only addresses."""
        pieces = [Pieces.of(size) for size in sizes[:MAX_TENSORS]]
        self._copies = [
            (number, piece.first, RowsToHost(target.data_ptr(), piece.step, piece.width, piece.count))
            for number, (target, piece) in enumerate(zip(self._downloaded, pieces, strict=False))
            if piece.width
        ]
        return pieces

    def download(self, addresses: Sequence[int]) -> None:
        """Download the chosen pieces. Called before the clock stops, so that late work shows as a difference."""
        for number, first, copy in self._copies:
            copy.start(addresses[number] + first)
        settle()

    def downloaded(self, pieces: Sequence[Pieces]) -> list[Tensor]:
        """Return the pieces of the last download."""
        return [
            target.flatten()[: piece.count * piece.width].view(piece.count, piece.width).clone()
            for target, piece in zip(self._downloaded, pieces, strict=False)
        ]
