"""Where the tensors of a row's slots lie in one shared buffer: each apart from the next, guards in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernwright.tasks.tensor import ConcreteTensor

ALIGNMENT = 256
GUARD_BYTES = 4096  # a page: a kernel that runs past its output by a vector, a row's tail or a warp lands in it


@dataclass(frozen=True)
class Placement:
    """One tensor of one slot."""

    name: str
    tensor: ConcreteTensor
    offset: int

    def as_message(self) -> dict[str, Any]:
        return {
            "offset": self.offset,
            "shape": list(self.tensor.shape),
            "strides": list(self.tensor.strides),
            "dtype": self.tensor.dtype,
        }


@dataclass(frozen=True)
class Layout:
    """Every tensor of every slot, and the guard zones around them."""

    slots: tuple[dict[str, Placement], ...]
    guards: tuple[tuple[int, int], ...]
    size: int


def lay_out(tensors: Mapping[str, ConcreteTensor], slots: int) -> Layout:
    position = 0
    guards: list[tuple[int, int]] = []
    placed: list[dict[str, Placement]] = []
    for _ in range(slots):
        slot: dict[str, Placement] = {}
        for name, tensor in tensors.items():
            start = _aligned(position + GUARD_BYTES)
            guards.append((position, start))
            slot[name] = Placement(name, tensor, start)
            position = start + tensor.span_bytes
        placed.append(slot)
    end = _aligned(position + GUARD_BYTES)
    guards.append((position, end))
    return Layout(tuple(placed), tuple(guards), end)


def slot_bytes(tensors: Mapping[str, ConcreteTensor]) -> int:
    return sum(t.span_bytes + GUARD_BYTES + ALIGNMENT for t in tensors.values())


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
