"""CudaWorkerDevice: arenas by descriptor, outputs in memory that the judge lent, graphs, and the census."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from kernwright.judge.protocol.messages import (
    MOST_KERNELS,
    Attach,
    CensusSource,
    LaunchedKernel,
    LaunchedKernels,
    RegionAddress,
    WorkerAnswer,
)
from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.system.cuda_driver import LentMemory, wait_awake
from kernwright.judge.worker.entry import RowCall
from kernwright.judge.worker.loops import Loop, NoLoop

MOST_LOST = 2  # pools given up with graphs that ran out of memory


class CudaWorkerDevice:
    """One GPU. Outputs come from torch's caching allocator on top of memory of the judge."""

    def __init__(self, device: str) -> None:
        self.name = "cuda"
        self.index = torch.device(device).index or 0
        wait_awake(self.index)
        torch.cuda.set_device(self.index)
        self._spark = torch.zeros(32, device="cuda")
        self._events: list[Any] = [torch.Event(enable_timing=True, device="cuda") for _ in range(2)]
        self._calls_events = self._events
        torch.cuda.synchronize()
        self._arena: LentMemory | None = None
        self._pool: Any = None
        self._allocator: Any = None
        self._kept: tuple[Any, ...] = ()
        self._lost: list[Any] = []
        self._no_graphs: dict[str, str] = {}
        self._captured: set[str] = set()  # ops

    def attach(self, message: Attach, descriptors: list[int]) -> WorkerAnswer:
        """Let calls allocate in the region, which the judge reads."""
        region = LentMemory.open(descriptors[0], message.bytes, self.index)
        library = ctypes.CDLL(message.pool)
        library.lend(ctypes.c_uint64(region.address), ctypes.c_uint64(region.size))
        allocator = torch.cuda.memory.CUDAPluggableAllocator(message.pool, "allocate", "release")
        self._kept = (region, library, allocator)
        self._allocator = allocator
        self._renew_pool()
        return RegionAddress(region=region.address)

    def _renew_pool(self) -> None:
        """Return free memory to the region, because blocks cached for one stream serve no other."""
        self._pool = None
        gc.collect()
        torch.cuda.empty_cache()
        self._pool = torch.cuda.MemPool(self._allocator.allocator())

    def open(self, descriptor: int, size: int) -> Tensor:
        """Map the arena of a row and close the previous one, whose tensors are freed."""
        torch.cuda.synchronize()
        self._renew_pool()
        if self._arena is not None:
            self._arena.close()
        self._arena = LentMemory.open(descriptor, size, self.index)
        return torch.as_tensor(self._arena, device="cuda")

    def calls(self) -> AbstractContextManager[Any]:
        return torch.cuda.use_mem_pool(self._pool)

    def reclaim(self) -> None:
        """Free outputs that a second stream has used: torch looks for those only at an allocation outside the pool."""
        torch.empty(1, device="cuda")

    def begin(self) -> None:
        """Launch a kernel that pays for the context switch, and record the first event."""
        self._spark.zero_()
        self._calls_events = self._events
        self._events[0].record()

    def finish(self) -> None:
        self._events[1].record()
        torch.cuda.synchronize()

    def event_ns(self) -> int:
        """Return the time between the events around the calls of the last block."""
        first, last = self._calls_events
        return round(float(first.elapsed_time(last)) * 1e6)

    def loop(self, side: SideOrders, call: RowCall, slots: Sequence[Sequence[Any]]) -> Loop:
        """Capture the calls of all slots as one graph, without launches from the host in between.

        Its events are nodes of the graph, so that the launch is not timed: about 60 us on an H200 after a context
        switch.
        """
        op = side.op
        if op in self._no_graphs:
            raise NoLoop(self._no_graphs[op])
        run = call.bind()
        self._renew_pool()
        with self.calls():
            run(slots[0])  # the setup of a first call must not be captured
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        events: list[Any] = [
            torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        ]
        outputs: list[Any] = []
        try:
            # Enter the stream outside, because a failed capture leaves its own stream current.
            with (
                torch.cuda.stream(torch.cuda.current_stream()),
                torch.cuda.graph(graph, pool=self._pool.id, capture_error_mode="thread_local"),
            ):
                events[0].record()
                outputs += [run(slot) for slot in slots]
                events[1].record()
        except Exception as error:
            why = f"its calls cannot be captured: {type(error).__name__}: {str(error)[:200]}"
            self._abandon(graph)
            if not is_short_of_memory(error) or len(self._lost) > MOST_LOST:  # otherwise another row may need less
                self._no_graphs[op] = why
            raise NoLoop(why) from None

        self._captured.add(op)
        nothing = self._graph_of_nothing

        def replay(order: Sequence[int]) -> list[Any]:
            if not order:
                nothing.replay()
                return []
            graph.replay()
            self._calls_events = events
            return [outputs[index] for index in order]

        return replay

    @functools.cached_property
    def _graph_of_nothing(self) -> torch.cuda.CUDAGraph:
        """A graph without calls, to measure the launch."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._spark.zero_()
        return graph

    def _abandon(self, graph: Any) -> None:
        """Give up a graph whose capture failed.

        torch up to 2.11 considers the capture active and aborts when the next pool ends; up to 2.13 it counts the graph
        among the users of its pool and aborts when that pool ends. So the capture is ended here, and pool and graph are
        kept forever. The op is not tried again, except a few times after a lack of memory.
        """
        torch.cuda.synchronize()
        with contextlib.suppress(RuntimeError):  # torch has ended it already
            torch._C._cuda_endAllocateToPool(self.index, self._pool.id)
        self._lost.append((graph, self._pool))
        self._renew_pool()

    def census(self, call: Any, slot: Sequence[Any], op: str, source: CensusSource) -> LaunchedKernels:
        """Return the kernels of one call."""
        with self.calls():
            call(slot)
        torch.cuda.synchronize()
        if source == "graph":
            if op not in self._captured:
                raise RuntimeError(self._no_graphs.get(op, "its calls were not captured as a graph"))
            return _listed(self._kernels_in_graph(call, slot))
        if source == "either" and op in self._captured:
            with contextlib.suppress(Exception):  # drivers before 12.3 have no names; the profiler has
                return _listed(self._kernels_in_graph(call, slot))
        return _listed(self._profiled(call, slot))

    def _kernels_in_graph(self, call: Any, slot: Sequence[Any]) -> Counter[tuple[str, int]]:
        from kernwright.judge.worker.cuda.graph_kernels import kernels_of

        graph = torch.cuda.CUDAGraph(keep_graph=True)
        try:
            with (
                torch.cuda.stream(torch.cuda.current_stream()),
                torch.cuda.graph(graph, pool=self._pool.id, capture_error_mode="thread_local"),
            ):
                call(slot)
        except Exception:
            self._abandon(graph)
            raise
        return kernels_of(graph.raw_cuda_graph())

    def _profiled(self, call: Any, slot: Sequence[Any]) -> Counter[tuple[str, int]]:
        from torch.profiler import ProfilerActivity, profile

        with self.calls(), profile(activities=[ProfilerActivity.CUDA]) as seen:
            call(slot)
            torch.cuda.synchronize()
        return Counter(
            (event.name(), event.device_resource_id())
            for event in seen.profiler.kineto_results.events()
            if event.device_type() == torch._C._autograd.DeviceType.CUDA
        )


def is_short_of_memory(error: BaseException) -> bool:
    """Return whether an error means a lack of memory. The allocator and graphs raise different types."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error).lower().replace("_", " ")


def _listed(kernels: Counter[tuple[str, int]]) -> LaunchedKernels:
    listed = [LaunchedKernel(name=name[:200], stream=stream, count=count) for (name, stream), count in kernels.items()]
    return LaunchedKernels(kernels=tuple(listed[:MOST_KERNELS]))
