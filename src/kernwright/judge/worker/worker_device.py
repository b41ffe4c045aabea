"""Inside a worker: the memory that calls work in, and what it takes to know that they are over."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor

from kernwright.judge.protocol.messages import Attach, Done, LaunchedKernels, WorkerAnswer
from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.worker.entry import RowCall
from kernwright.judge.worker.loops import Loop, loop_without_python

Slots = Sequence[Sequence[Any]]


class WorkerDevice(Protocol):
    """Where a worker's tensors live. Both sides of a judgement have the same one."""

    name: str

    def attach(self, message: Attach, descriptors: list[int]) -> WorkerAnswer:
        """Takes over what the judge lends for the worker's whole life."""
        ...

    def open(self, descriptor: int, size: int) -> Tensor:
        """The bytes of an arena."""
        ...

    def calls(self) -> AbstractContextManager[Any]:
        """Calls run inside this."""
        ...

    def reclaim(self) -> None:
        """After outputs were let go of: their memory is free for the next ones."""
        ...

    def begin(self) -> None:
        """First thing in a timed block, but where the worker has been awake since the last one."""
        ...

    def finish(self) -> None:
        """Returns when everything that the calls started is done."""
        ...

    def event_ns(self) -> int:
        """The last block's time by the device's own events; zero where it has none."""
        ...

    def loop(self, side: SideOrders, call: RowCall, slots: Slots) -> Loop: ...

    def census(self, call: Any, slot: Sequence[Any], op: str, profiled: bool) -> LaunchedKernels:
        """The kernels of one call, in a pass of its own that nobody times."""
        ...


class CpuWorkerDevice:
    """The host's memory. A call that has returned is over: whatever it left running is stopped with the worker."""

    name = "cpu"

    def attach(self, message: Attach, descriptors: list[int]) -> WorkerAnswer:
        return Done()

    def open(self, descriptor: int, size: int) -> Tensor:
        import torch

        memory = mmap.mmap(descriptor, size)
        os.close(descriptor)
        return torch.frombuffer(memory, dtype=torch.uint8)

    def calls(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def reclaim(self) -> None:
        pass

    def begin(self) -> None:
        pass

    def finish(self) -> None:
        pass

    def event_ns(self) -> int:
        return 0

    def loop(self, side: SideOrders, call: RowCall, slots: Slots) -> Loop:
        return loop_without_python(side, call, [list(slot) for slot in slots])

    def census(self, call: Any, slot: Sequence[Any], op: str, profiled: bool) -> LaunchedKernels:
        return LaunchedKernels(kernels=())


def find_worker_device(device: str) -> WorkerDevice:
    if device == "cpu":
        return CpuWorkerDevice()
    from kernwright.judge.worker.cuda.worker_device import CudaWorkerDevice

    return CudaWorkerDevice(device)
