"""SlotLayout: the places of the tensors of a row's slots in one shared buffer, with guards between them.

All slots have the same plan and follow each other at a distance of one pitch. So one strided view reaches a tensor in
all slots at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernwright.judge.protocol.orders import TensorPlacement
from kernwright.tasks.tensor import ConcreteTensor

ALIGNMENT = 256
GUARD_BYTES = 4096  # a page: a kernel that writes a vector, the tail of a row or a warp too far writes into it


@dataclass(frozen=True)
class Placement:
    """One tensor of one slot."""

    name: str
    tensor: ConcreteTensor
    offset: int

    def as_message(self) -> TensorPlacement:
        return TensorPlacement(
            offset=self.offset, shape=self.tensor.shape, strides=self.tensor.strides, dtype=self.tensor.dtype
        )


@dataclass(frozen=True)
class SlotLayout:
    """The plan of a slot, how often it is repeated, and the guard zones around its tensors."""

    plan: dict[str, Placement]
    gaps: tuple[tuple[int, int], ...]  # guards within a slot: offset and length
    pitch: int
    count: int

    @property
    def size(self) -> int:
        return self.count * self.pitch + GUARD_BYTES

    @property
    def tail(self) -> tuple[int, int]:
        """Return the start and end of the guard behind the last slot."""
        return self.count * self.pitch, self.size

    @property
    def guards(self) -> list[tuple[int, int]]:
        """Return start and end of every guard zone. Adjacent zones are joined."""
        zones: list[tuple[int, int]] = []
        steps = [(slot * self.pitch + offset, length) for slot in range(self.count) for offset, length in self.gaps]
        for start, length in [*steps, (self.tail[0], GUARD_BYTES)]:
            if zones and zones[-1][1] == start:
                zones[-1] = (zones[-1][0], start + length)
            else:
                zones.append((start, start + length))
        return zones

    def place(self, slot: int, name: str) -> Placement:
        placed = self.plan[name]
        return Placement(name, placed.tensor, slot * self.pitch + placed.offset)


def lay_out(tensors: Mapping[str, ConcreteTensor], slots: int) -> SlotLayout:
    end = 0
    gaps: list[tuple[int, int]] = []
    plan: dict[str, Placement] = {}
    for name, tensor in tensors.items():
        start = _aligned(end + GUARD_BYTES) + tensor.offset * tensor.item_bytes  # the gap before the tensor is a guard
        gaps.append((end, start - end))
        plan[name] = Placement(name, tensor, start)
        end = start + tensor.span_bytes
    pitch = _aligned(end)
    if pitch > end:
        gaps.append((end, pitch - end))
    return SlotLayout(plan, tuple(gaps), pitch, slots)


def slot_bytes(tensors: Mapping[str, ConcreteTensor]) -> int:
    return lay_out(tensors, 1).pitch


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
