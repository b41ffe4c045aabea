"""Roofline: the place of a kernel under the ceilings of memory and of arithmetic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """A kernel's place under the two ceilings.

    Attributes:
        intensity: FLOPs per byte that memory moves.
        reached: FLOPs per second.
        memory_ceiling: bytes per second.
        compute_ceiling: FLOPs per second.
    """

    intensity: float
    reached: float
    memory_ceiling: float
    compute_ceiling: float

    @property
    def ridge(self) -> float:
        """Return the intensity at which both ceilings meet."""
        return self.compute_ceiling / self.memory_ceiling

    @property
    def is_memory_side(self) -> bool:
        return self.intensity < self.ridge

    @property
    def attainable(self) -> float:
        """Return the FLOPs per second that the lower ceiling allows at this intensity."""
        return min(self.compute_ceiling, self.intensity * self.memory_ceiling)

    @property
    def share(self) -> float:
        """Return how close the kernel is to its ceiling. On the memory side it is the share of the bandwidth."""
        return self.reached / self.attainable


def roofline(flops: float, traffic: float, memory_ceiling: float, compute_ceiling: float) -> Roofline | None:
    """Return the place of a kernel with so many FLOPs and bytes per second, or None if it has no FLOPs or no bytes."""
    if flops <= 0 or traffic <= 0:
        return None
    return Roofline(
        intensity=flops / traffic, reached=flops, memory_ceiling=memory_ceiling, compute_ceiling=compute_ceiling
    )
