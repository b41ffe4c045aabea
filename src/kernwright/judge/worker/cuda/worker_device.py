"""Inside a worker on a GPU: arenas by descriptor, outputs in memory that the judge lent, graphs, and a census."""

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
    LaunchedKernel,
    LaunchedKernels,
    RegionAddress,
    WorkerAnswer,
)
from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.system.cuda_driver import LentMemory, wait_awake
from kernwright.judge.worker.entry import RowCall
from kernwright.judge.worker.loops import Loop, NoLoop

MOST_LOST = 2  # pools of a worker's region, with the graphs that found no room


class CudaWorkerDevice:
    """One GPU. A call's outputs come from torch's caching allocator, whose memory is the judge's region."""

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
        """From here on calls allocate in the region: what they return, the judge reads by itself."""
        region = LentMemory.open(descriptors[0], message.bytes, self.index)
        library = ctypes.CDLL(message.pool)
        library.lend(ctypes.c_uint64(region.address), ctypes.c_uint64(region.size))
        allocator = torch.cuda.memory.CUDAPluggableAllocator(message.pool, "allocate", "release")
        self._kept = (region, library, allocator)
        self._allocator = allocator
        self._renew_pool()
        return RegionAddress(region=region.address)

    def _renew_pool(self) -> None:
        """Hands free memory back to the region: blocks that were cached for one stream serve no other."""
        self._pool = None
        gc.collect()
        torch.cuda.empty_cache()
        self._pool = torch.cuda.MemPool(self._allocator.allocator())

    def open(self, descriptor: int, size: int) -> Tensor:
        """The arena before this one goes: its tensors were let go of, and nothing runs between requests."""
        torch.cuda.synchronize()
        self._renew_pool()
        if self._arena is not None:
            self._arena.close()
        self._arena = LentMemory.open(descriptor, size, self.index)
        return torch.as_tensor(self._arena, device="cuda")

    def calls(self) -> AbstractContextManager[Any]:
        return torch.cuda.use_mem_pool(self._pool)

    def reclaim(self) -> None:
        """Outputs that a second stream has used are free only when torch looks, and inside a pool it never does."""
        torch.empty(1, device="cuda")

    def begin(self) -> None:
        """The first kernel after another process had the GPU pays for the switch; this one is everybody's first."""
        self._spark.zero_()
        self._calls_events = self._events
        self._events[0].record()

    def finish(self) -> None:
        self._events[1].record()
        torch.cuda.synchronize()

    def event_ns(self) -> int:
        """Around the calls of the last block."""
        first, last = self._calls_events
        return round(float(first.elapsed_time(last)) * 1e6)

    def loop(self, side: SideOrders, call: RowCall, slots: Sequence[Sequence[Any]]) -> Loop:
        """All slots' calls as one graph: no launch from the host between them.

        Its events are nodes of it: around them lies what a graph's launch takes, about 60 us on an H200 whose
        context was away, and that is no call's time.
        """
        op = side.op
        if op in self._no_graphs:
            raise NoLoop(self._no_graphs[op])
        run = call.bind()
        self._renew_pool()
        with self.calls():
            run(slots[0])  # whatever a first call sets up must not be captured
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        events: list[Any] = [
            torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        ]
        outputs: list[Any] = []
        try:
            # The stream outside, because a capture that fails leaves its own one in force.
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
            if not is_short_of_memory(error) or len(self._lost) > MOST_LOST:  # else another row may need less
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
        """What a graph's launch takes, whatever is in it."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._spark.zero_()
        return graph

    def _abandon(self, graph: Any) -> None:
        """After a capture that failed. Up to 2.11 torch takes it to go on for good, and aborts when the next pool ends;
        up to 2.13 it is still counted among its pool's users, and torch aborts when that pool ends. So the first is set
        right here, and the pool and the graph never end. There is no other try of that op, which would cost
        another pool, but for a few where it was for want of memory."""
        torch.cuda.synchronize()
        with contextlib.suppress(RuntimeError):  # torch has done it itself
            torch._C._cuda_endAllocateToPool(self.index, self._pool.id)
        self._lost.append((graph, self._pool))
        self._renew_pool()

    def census(self, call: Any, slot: Sequence[Any], op: str, profiled: bool) -> LaunchedKernels:
        """What a call launches; by its graph, where the op's calls can be captured and nobody asks for a profiler."""
        with self.calls():
            call(slot)
        torch.cuda.synchronize()
        if not profiled and op in self._captured:
            with contextlib.suppress(Exception):  # a driver before 12.3 has no names, and who knows: a profiler can
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
    """torch's allocator says it by an error of its own, a graph that finds no room on the device by any other."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error).lower().replace("_", " ")


def _listed(kernels: Counter[tuple[str, int]]) -> LaunchedKernels:
    listed = [LaunchedKernel(name=name[:200], stream=stream, count=count) for (name, stream), count in kernels.items()]
    return LaunchedKernels(kernels=tuple(listed[:MOST_KERNELS]))
