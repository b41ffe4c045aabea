"""Arena: memory for the slots of a row, allocated by the judge and shared with a worker, with canaries in between."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.protocol.layout import Placement, SlotLayout
from kernwright.judge.system.procfs import available_memory

F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 1, 2, 4
CANARY = 0xA5
POISON = 0xFB  # this byte, repeated, is a huge negative number in every float dtype and never a plausible output


@dataclass
class Arena:
    """Shared memory laid out for one row. The judge keeps the descriptor and hands the worker a copy."""

    layout: SlotLayout
    descriptor: int
    bytes: Tensor
    release: Callable[[], None]

    def __post_init__(self) -> None:
        for zone in self._guards():
            zone.fill_(CANARY)

    @classmethod
    def create(cls, layout: SlotLayout) -> Arena:
        """Allocate an arena in host memory."""
        free = available_memory()
        if layout.size > free:  # Linux would grant the memory and kill a process when it is used
            raise EnvironmentProblem(
                f"a row needs {layout.size / 2**20:.0f} MiB of shared memory, {free / 2**20:.0f} MiB are free",
                "choose smaller rows with --rows, or free some memory",
            )
        descriptor = os.memfd_create("kernwright-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, layout.size)
            # Allocate every page now, so that a lack of memory is an error here and not a SIGBUS in a timed block.
            os.posix_fallocate(descriptor, 0, layout.size)
            # The worker holds this descriptor too. The seals keep it from shrinking the file under the judge's mapping.
            fcntl.fcntl(descriptor, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
            memory = mmap.mmap(descriptor, layout.size)
        except OSError as error:
            os.close(descriptor)
            raise EnvironmentProblem(
                f"no {layout.size / 2**20:.0f} MiB of shared memory for a row: {error}",
                "choose smaller rows with --rows, or free some memory",
            ) from None
        # The memory is unmapped when the last tensor that views it is freed.
        return cls(layout, descriptor, torch.frombuffer(memory, dtype=torch.uint8), lambda: os.close(descriptor))

    def tensor(self, slot: int, name: str) -> Tensor:
        placed = self.layout.place(slot, name)
        spec = placed.tensor
        span = self.bytes[placed.offset : placed.offset + spec.span_bytes].view(_dtype(placed))
        return span.as_strided(spec.shape, spec.strides)

    def stacked(self, name: str, slots: Tensor | None = None) -> Tensor:
        """Return one view of the tensor in all slots, with the slots as the first axis.

        `slots` is a copy of the arena's bytes to view instead of the arena.
        """
        memory = self.bytes if slots is None else slots
        placed = self.layout.plan[name]
        spec = placed.tensor
        step = self.layout.pitch // spec.item_bytes
        return memory[placed.offset : self._last(placed)].view(_dtype(placed)).as_strided(
            (self.layout.count, *spec.shape), (step, *spec.strides)
        )  # fmt: skip

    def stacked_bytes(self, name: str) -> Tensor:
        """Return the bytes of the tensor in all slots, including gaps between its rows."""
        placed = self.layout.plan[name]
        shape = (self.layout.count, placed.tensor.span_bytes)
        return self.bytes.as_strided(shape, (self.layout.pitch, 1), placed.offset)

    def _last(self, placed: Placement) -> int:
        return (self.layout.count - 1) * self.layout.pitch + placed.offset + placed.tensor.span_bytes

    def poison(self, slot: int, name: str) -> None:
        self.stacked_bytes(name)[slot].fill_(POISON)

    def is_poisoned(self, slot: int, name: str) -> bool:
        return bool((self.stacked_bytes(name)[slot] == POISON).all())

    def _guards(self) -> Iterator[Tensor]:
        """Yield a view of each guard zone in all slots, then the guard after the last slot."""
        for offset, length in self.layout.gaps:
            yield self.bytes.as_strided((self.layout.count, length), (self.layout.pitch, 1), offset)
        start, end = self.layout.tail
        yield self.bytes[start:end]

    def broken_guard(self) -> int | None:
        """Return the offset of the first overwritten canary byte, or None."""
        for zone in self._guards():
            if not bool((zone == CANARY).all()):
                first = (zone != CANARY).nonzero()[0].tolist()
                return int(zone.storage_offset() + sum(i * s for i, s in zip(first, zone.stride(), strict=True)))
        return None

    def close(self) -> None:
        self.release()


def _dtype(placed: Placement) -> torch.dtype:
    return getattr(torch, placed.tensor.torch_dtype_name)  # type: ignore[no-any-return]
