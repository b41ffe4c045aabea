"""WorkerDevice: the memory that calls work in, and how to wait for their end."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor

from kernwright.judge.protocol.messages import (
    MOST_KERNELS,
    Attach,
    CensusSource,
    Done,
    LaunchedKernel,
    LaunchedKernels,
    WorkerAnswer,
)
from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.worker.entry import RowCall
from kernwright.judge.worker.loops import Loop, loop_without_python

Slots = Sequence[Sequence[Any]]


class WorkerDevice(Protocol):
    """The device of a worker's tensors. All sides of a judgement have the same."""

    name: str

    def attach(self, message: Attach, descriptors: list[int]) -> WorkerAnswer:
        """Map memory that the judge lends for the worker's whole life."""
        ...

    def open(self, descriptor: int, size: int) -> Tensor:
        """Return the bytes of an arena."""
        ...

    def calls(self) -> AbstractContextManager[Any]:
        """Return the context that calls run in."""
        ...

    def reclaim(self) -> None:
        """Make the memory of freed outputs available."""
        ...

    def begin(self) -> None:
        """Begin a timed block, unless the worker has been awake since the last one."""
        ...

    def finish(self) -> None:
        """Wait until everything that the calls started is done."""
        ...

    def event_ns(self) -> int:
        """Return the time of the last block by the device's events; zero if it has none."""
        ...

    def loop(self, side: SideOrders, call: RowCall, slots: Slots) -> Loop: ...

    def census(self, call: Any, slot: Sequence[Any], op: str, source: CensusSource) -> LaunchedKernels:
        """Return the kernels of one untimed call, or its operators where a call launches no kernels."""
        ...


class CpuWorkerDevice:
    """The host's memory. A call that has returned is over; threads that it left running are stopped with the worker."""

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

    def census(self, call: Any, slot: Sequence[Any], op: str, source: CensusSource) -> LaunchedKernels:
        """Return the operators of torch and the compiled graphs that a call calls itself. Native code calls none."""
        from torch.autograd.profiler import profile  # starts in 2 ms; torch.profiler imports the compiler first

        with profile() as seen:
            call(slot)
        called = Counter(
            event.name
            for event in seen.function_events or ()
            if event.cpu_parent is None and not event.name.startswith("[")
        )
        operators = [LaunchedKernel(name=name[:200], stream=0, count=count) for name, count in called.items()]
        return LaunchedKernels(kernels=tuple(operators[:MOST_KERNELS]))


def find_worker_device(device: str) -> WorkerDevice:
    if device == "cpu":
        return CpuWorkerDevice()
    from kernwright.judge.worker.cuda.worker_device import CudaWorkerDevice

    return CudaWorkerDevice(device)
