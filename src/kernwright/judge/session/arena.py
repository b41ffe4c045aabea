"""Arena: device memory that the judge allocates and a worker sees, with canaries between its tensors."""

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
POISON = 0xFB  # a huge negative number in every float dtype: never a plausible output


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
        """In the host's memory."""
        free = available_memory()
        if layout.size > free:  # the kernel would promise the memory and then kill somebody for it
            raise EnvironmentProblem(
                f"a row needs {layout.size / 2**20:.0f} MiB of shared memory, {free / 2**20:.0f} MiB are free",
                "choose smaller rows with --rows, or free some memory",
            )
        descriptor = os.memfd_create("kernwright-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, layout.size)
            # Touch every page now: a machine without the memory says so here, not as a SIGBUS in a timed block.
            os.posix_fallocate(descriptor, 0, layout.size)
            # A worker holds this descriptor too: sealed, it cannot pull the memory out from under the judge.
            fcntl.fcntl(descriptor, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
            memory = mmap.mmap(descriptor, layout.size)
        except OSError as error:
            os.close(descriptor)
            raise EnvironmentProblem(
                f"no {layout.size / 2**20:.0f} MiB of shared memory for a row: {error}",
                "choose smaller rows with --rows, or free some memory",
            ) from None
        # The mapping goes when the last tensor view of it does.
        return cls(layout, descriptor, torch.frombuffer(memory, dtype=torch.uint8), lambda: os.close(descriptor))

    def tensor(self, slot: int, name: str) -> Tensor:
        placed = self.layout.place(slot, name)
        spec = placed.tensor
        span = self.bytes[placed.offset : placed.offset + spec.span_bytes].view(_dtype(placed))
        return span.as_strided(spec.shape, spec.strides)

    def stacked(self, name: str, slots: Tensor | None = None) -> Tensor:
        """The tensor in all slots, as one view with the slots in front; or in a copy of them."""
        memory = self.bytes if slots is None else slots
        placed = self.layout.plan[name]
        spec = placed.tensor
        step = self.layout.pitch // spec.item_bytes
        return memory[placed.offset : self._last(placed)].view(_dtype(placed)).as_strided(
            (self.layout.count, *spec.shape), (step, *spec.strides)
        )  # fmt: skip

    def stacked_bytes(self, name: str) -> Tensor:
        """The same tensor's whole span in all slots, byte by byte."""
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
        """Every guard zone: one view per gap of the plan for all slots, then the one at the end."""
        for offset, length in self.layout.gaps:
            yield self.bytes.as_strided((self.layout.count, length), (self.layout.pitch, 1), offset)
        start, end = self.layout.tail
        yield self.bytes[start:end]

    def broken_guard(self) -> int | None:
        """Offset of a canary that is gone, or None."""
        for zone in self._guards():
            if not bool((zone == CANARY).all()):
                first = (zone != CANARY).nonzero()[0].tolist()
                return int(zone.storage_offset() + sum(i * s for i, s in zip(first, zone.stride(), strict=True)))
        return None

    def close(self) -> None:
        self.release()


def _dtype(placed: Placement) -> torch.dtype:
    return getattr(torch, placed.tensor.torch_dtype_name)  # type: ignore[no-any-return]
