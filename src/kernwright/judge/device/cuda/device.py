"""CudaDevice: one NVIDIA GPU as a device of the judge."""

from __future__ import annotations

import importlib.util
import os
import platform
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernwright.core.errors import EnvironmentProblem
from kernwright.core.op import Op
from kernwright.judge.device.cuda.contents import CudaContentPool
from kernwright.judge.device.cuda.copying import CopyMethod, copy_methods, whole_pages
from kernwright.judge.device.cuda.memory.region import BUSY_NS, OutputKeeper, Region, build_pool
from kernwright.judge.device.cuda.nvml import Nvml
from kernwright.judge.device.cuda.session import CudaSession
from kernwright.judge.device.problems import DeviceFull
from kernwright.judge.process.cpu_keepalive import CpuKeepalive
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.system import cuda_driver as driver
from kernwright.tasks.candidate import Style
from kernwright.tasks.policy import TimingPolicy
from kernwright.tasks.workload import Workload

# Device memory in units of one arena: a side has an arena and a region that is twice as large, and the judge has its
# contents, oracles and copies.
SIDE_SHARE = 3
JUDGE_SHARE = 11
SIDES_SHARE = 0.75  # maximum share of the free memory for the arenas and regions of all sides
MAX_ARENA_BYTES = 8 * 2**30
SCRATCH_FACTOR = 8  # temporaries of an eager chain, as a multiple of the row's minimal traffic
GPU_FACTOR = 1.5  # size of one unit above, as a multiple of the row's minimal traffic
# Memory of the judge. CHAIN_FACTOR covers a chain in float32 and its comparison, as a multiple of the row's minimal
# traffic. CONTENTS_FACTOR covers inputs and expected outputs, which are twice as wide, of two blocks at a time, as a
# multiple of a block's bytes. For a row of 3.6 GB with three calls per block, the judge held 16 to 18 times the row's
# bytes when it ran out of memory.
CHAIN_FACTOR, CONTENTS_FACTOR = 10.5, 6.0
JUDGE_FACTOR = CHAIN_FACTOR + CONTENTS_FACTOR  # with two calls per block
SPARE_FACTOR = 4.5  # part of a region for temporaries and retained outputs, as a multiple of the row's minimal traffic
# Memory of a process without allocations: 527 MiB on an H200, 618 MiB after torch has run a few kernels. It is
# subtracted only for workers beyond the first three, because the shares above were measured with three. With seven
# sides 7 GiB of 140 GiB remained free, and every row got its graphs.
CONTEXT_BYTES = 640 * 2**20
MAX_SLOTS = 1024
MAX_PROBES = 32
CACHE_FACTOR = 4  # a working set of this multiple of the cache size does not stay in the cache
COPIED_BYTES = 4e9  # bytes that one graph of the copy benchmark moves, which takes about a millisecond
MAX_COPIES = 256  # copies in one such graph
CACHE_SPEEDUP = 8  # upper limit for the bandwidth of a cache, as a multiple of the memory's peak


class CudaDevice:
    """One NVIDIA GPU: lends memory to workers, records its state, gives limits that no kernel can exceed."""

    shares_contents = True  # no process can read another's device memory
    deadline_s = 30.0
    has_kernels = True
    max_slots = MAX_SLOTS
    keepalive: CpuKeepalive | None = None
    block_loop: Path | None = None  # a block begins and ends with device work that only the loop in Python starts

    def __init__(self, name: str) -> None:
        self.name = name
        self.index = torch.device(name).index or 0
        self._require_device()
        self.name = f"cuda:{self.index}"
        driver.wait_awake(self.index)
        torch.cuda.set_device(self.index)
        torch.zeros(1, device="cuda")
        self.capability: tuple[int, int] | None = torch.cuda.get_device_capability(self.index)
        self.nvml = Nvml(torch.cuda.get_device_properties(self.index))
        self.keeper = OutputKeeper(self.index)
        self._regions: dict[int, Region] = {}
        self._region_bytes = self._judge_bytes = 0
        usable = sorted(os.sched_getaffinity(0))
        self._processor = usable[-1] if len(usable) > 1 else None
        self.make_room_for(3)

    def _require_device(self) -> None:
        """Raise if the device or software for it is missing."""
        if not torch.cuda.is_available():
            raise EnvironmentProblem(
                f"device {self.name} is not available: torch {torch.__version__} finds no CUDA device",
                "use --device cpu, or a machine with an NVIDIA GPU and a torch that was built for it",
            )
        if self.index >= torch.cuda.device_count():
            raise EnvironmentProblem(
                f"device {self.name} is not available: this machine has {torch.cuda.device_count()} CUDA devices",
                f"use cuda:0 to cuda:{torch.cuda.device_count() - 1}",
            )
        if importlib.util.find_spec("triton") is None:
            raise EnvironmentProblem("the judge needs Triton to compare outputs on a GPU, and it is not installed",
                                     "pip install triton")  # fmt: skip
        if not driver.attribute(self.index, driver.VMM_WITH_DESCRIPTORS):
            raise EnvironmentProblem(
                f"{self.name} cannot share memory by file descriptor", "update the driver; Pascal and later can"
            )

    def free_bytes(self) -> int:
        """Return the free device memory, after torch has returned its cached blocks."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.index)[0]

    def make_room_for(self, sides: int) -> None:
        self._sides = sides
        self.arena_bytes = min(MAX_ARENA_BYTES, max(0, self.free_bytes() - self._contexts_bytes) // self._shares)

    @property
    def _shares(self) -> int:
        return SIDE_SHARE * self._sides + JUDGE_SHARE

    def bytes_to_judge(self, row: Workload) -> int:
        """Return the memory needed for all sides and the judge.

        With many sides, regions shrink faster than arenas. They must still hold the outputs of two calls.
        """
        region_share = SIDES_SHARE / self._sides - 1 / self._shares
        lent = max(GPU_FACTOR * row.bytes_min, self.arena_bytes / 2) * self._shares
        region = (SPARE_FACTOR + 1) * row.bytes_min
        beside_judge = self._sides * (region + self.arena_bytes) + JUDGE_FACTOR * row.bytes_min
        return int(max(lent, region / region_share, beside_judge)) + self._contexts_bytes

    @property
    def _contexts_bytes(self) -> int:
        """Return the memory of the worker processes beyond the first three."""
        return CONTEXT_BYTES * max(0, self._sides - 3)

    def block_bytes(self, row: Workload) -> int:
        of_judge = (self._judge_bytes - CHAIN_FACTOR * row.bytes_min) / CONTENTS_FACTOR
        return int(min(self.arena_bytes, self._region_bytes - SPARE_FACTOR * row.bytes_min, of_judge))

    def describe(self) -> dict[str, Any]:
        shown = torch.cuda.get_device_properties(self.index)
        return {
            "kind": "cuda",
            "model": shown.name,
            "capability": f"{shown.major}.{shown.minor}",
            "processors": shown.multi_processor_count,
            "memory_bytes": shown.total_memory,
            "cache_bytes": shown.L2_cache_size,
            "peak_bytes_per_s": self.peak_bytes_per_s,
            "architecture": platform.machine(),
            "kernel": platform.release(),
            "host_processors": len(os.sched_getaffinity(0)),
            **self.nvml.identity(),
        }

    def state(self) -> dict[str, Any]:
        return {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load_1min": os.getloadavg()[0],
            "free_bytes": self.free_bytes(),
            **self.nvml.state(),
        }

    def worker_processor(self) -> int | None:
        return self._processor

    def environment(self) -> dict[str, str]:
        major, minor = torch.cuda.get_device_capability(self.index)
        suffix = "a" if major >= 9 else ""  # enables instructions that only this architecture has
        return {
            "TVM_FFI_CUDA_ARCH_LIST": f"{major}.{minor}{suffix}",
            "CUDA_CACHE_DISABLE": "1",  # sides must not share the driver's cache of compiled kernels
        }

    def reads(self) -> tuple[Path, ...]:
        return (self._pool_library.parent,)

    @property
    def peak_bytes_per_s(self) -> float:
        """The peak memory bandwidth: two transfers per clock cycle over the whole bus."""
        clock = driver.attribute(self.index, driver.MEMORY_CLOCK_KHZ) * 1e3
        return 2 * clock * driver.attribute(self.index, driver.BUS_WIDTH_BITS) / 8

    def fastest_seconds(self, moved_bytes: int, threads: int, working_set: int = 0) -> float:
        cache = torch.cuda.get_device_properties(self.index).L2_cache_size
        peak = self.peak_bytes_per_s * (1 if working_set > CACHE_FACTOR * cache else CACHE_SPEEDUP)
        return moved_bytes / peak

    def copy_seconds(self, moved_bytes: int, threads: int) -> float:
        """Time copies in a graph, through more memory than the cache holds.

        The graph has enough copies that the few microseconds between two replays do not matter.
        """
        size = whole_pages(moved_bytes)
        cache = torch.cuda.get_device_properties(self.index).L2_cache_size
        pairs = max(2, min(64, -(-CACHE_FACTOR * cache // (2 * size))))
        repeats = max(1, min(MAX_COPIES // pairs, round(COPIED_BYTES / (2 * size * pairs))))
        sources = torch.zeros((pairs, size), dtype=torch.uint8, device=self.name)
        targets = torch.empty_like(sources)
        times = [self._replay_seconds(copy, targets, sources, repeats) for copy in copy_methods(self.name)]
        return min(times) / (pairs * repeats)

    def _replay_seconds(self, copy: CopyMethod, targets: Tensor, sources: Tensor, repeats: int) -> float:
        copy(targets[0], sources[0])  # the first launch loads the kernel, which cannot be captured
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                for target, source in zip(targets, sources, strict=True):
                    copy(target, source)
        self.keeper.require_full_speed()
        times = []
        for _ in range(5):
            start, end = (torch.Event(enable_timing=True, device=self.name) for _ in range(2))
            graph.replay()  # keeps the device busy while the timed replay is launched
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize(self.index)
            times.append(float(start.elapsed_time(end)) / 1e3)
        return sorted(times)[len(times) // 2]

    def block_ms(self, policy: TimingPolicy) -> float:
        return policy.gpu_block_ms

    def probe_slots(self, row: Workload) -> int:
        """Return the number of slots, which is large enough that calls take longer than a context switch."""
        return max(2, min(MAX_PROBES, self.arena_bytes // (8 * max(1, row.bytes_min))))

    def begin(self, rows: tuple[Workload, ...], folder: Path, one_by_one: bool = False) -> None:
        self.keeper.memory_speed.learn()
        largest = max(row.bytes_min for row in rows)
        found = self.free_bytes()
        free = found - self._contexts_bytes
        for_sides = int(min(SIDES_SHARE * free, free - JUDGE_FACTOR * largest))
        self._region_bytes = driver.rounded(
            min(
                (0 if one_by_one else 2 * self.arena_bytes) + SCRATCH_FACTOR * largest + 2**28,
                for_sides // self._sides - self.arena_bytes,
            )
        )
        self._judge_bytes = free - self._sides * (self._region_bytes + self.arena_bytes)
        if self._region_bytes < largest:
            raise DeviceFull(
                f"{found / 2**30:.1f} GiB are free on {self.name}: too few for the outputs of {self._sides} sides",
                "free the GPU's memory, choose smaller rows with --rows, or fewer baselines at once",
            )
        self._pool_library = build_pool(folder)

    def attach_worker(self, worker: WorkerProcess) -> None:
        self._regions[worker.pid] = Region(worker, self._region_bytes, self.index, self._pool_library)

    def detach_worker(self, worker: WorkerProcess) -> None:
        region = self._regions.pop(worker.pid, None)
        if region is not None:
            region.close()

    def open_session(self, worker: WorkerProcess, op: Op, row: Workload, style: Style, slots: int) -> CudaSession:
        session = CudaSession(
            worker=worker,
            op=op,
            row=row,
            style=style,
            slots=slots,
            region=self._regions[worker.pid],
            keeper=self.keeper,
        )
        session.block_deadline_s = worker.device_deadline_s = self.deadline_s
        return session

    def pool(self, row: Workload, seed: int) -> CudaContentPool:
        return CudaContentPool.seeded(seed, self.index)

    def is_busy(self) -> bool:
        return self.keeper.response_ns() > BUSY_NS

    def is_slow(self, within_s: float) -> bool:
        return not self.keeper.memory_speed.wait_until_fast(within_s)

    def accept_memory_speed(self) -> None:
        self.keeper.memory_speed.accept()

    def health(self) -> str | None:
        """Return the problem of the judge's context, which a candidate may have broken; None if it works."""
        try:
            probe = torch.arange(2**16, device=self.name)
            is_correct = int((probe * 2 - probe).sum()) == 2**15 * (2**16 - 1)
            torch.cuda.synchronize(self.index)
        except RuntimeError as error:
            return f"the GPU's context is broken: {str(error).splitlines()[0]}"
        return None if is_correct else "the GPU computes wrong sums"
