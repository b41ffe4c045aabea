"""Arena: device memory that the judge allocates and a worker sees, with canaries between its tensors."""

from __future__ import annotations

import fcntl
import mmap
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.errors import EnvironmentProblem
from kernwright.judge.device import available_memory
from kernwright.judge.layout import Layout, Placement

F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 1, 2, 4
CANARY = 0xA5
POISON = 0xFB  # a huge negative number in every float dtype: never a plausible output


@dataclass
class Arena:
    """Shared memory laid out for one row. The judge keeps the descriptor and hands the worker a copy."""

    layout: Layout
    descriptor: int
    memory: mmap.mmap
    bytes: Tensor

    @classmethod
    def create(cls, layout: Layout) -> Arena:
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
        arena = cls(layout, descriptor, memory, torch.frombuffer(memory, dtype=torch.uint8))
        for start, end in layout.guards:
            arena.bytes[start:end] = CANARY
        return arena

    def tensor(self, placement: Placement) -> Tensor:
        spec = placement.tensor
        dtype = getattr(torch, spec.torch_dtype_name)
        span = self.bytes[placement.offset : placement.offset + spec.span_bytes].view(dtype)
        return span.as_strided(spec.shape, spec.strides)

    def poison(self, placement: Placement) -> None:
        self.bytes[placement.offset : placement.offset + placement.tensor.span_bytes] = POISON

    def is_poisoned(self, placement: Placement) -> bool:
        return bool((self.bytes[placement.offset : placement.offset + placement.tensor.span_bytes] == POISON).all())

    def broken_guard(self) -> int | None:
        """Offset of the first canary that is gone, or None."""
        for start, end in self.layout.guards:
            zone = self.bytes[start:end]
            if not bool((zone == CANARY).all()):
                return start + int((zone != CANARY).nonzero()[0].item())
        return None

    def close(self) -> None:
        os.close(self.descriptor)
        # The mapping goes when the last tensor view of it does.
