"""CudaDevice: one NVIDIA GPU under the judge."""

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
from kernwright.judge.device.cuda.copying import Way, ways_on, whole_pages
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

# A side's arena and its region, which is twice as large; the judge's contents, oracles and copies: in arenas.
SIDE_SHARE = 3
JUDGE_SHARE = 11
SIDES_SHARE = 0.75  # of the memory, at most, for all arenas and regions together
MOST_BUDGET = 8 * 2**30
SCRATCH_FACTOR = 8  # a chain's temporaries, over a row's fewest bytes
GPU_FACTOR = 1.5  # over a row's fewest bytes, for each of those shares
# Likewise, for the judge: a chain in float32 and what it compares. And over a block's bytes: what calls work on and,
# twice as wide, what they must give, of two blocks at a time. Of a row of 3.6 GB, with three calls a block, it held
# about 16 to 18 times the bytes, as reckoned from what the device had left, and asked for one more.
CHAIN_FACTOR, CONTENTS_FACTOR = 10.5, 6.0
JUDGE_FACTOR = CHAIN_FACTOR + CONTENTS_FACTOR  # two calls a block
SPARE_FACTOR = 4.5  # likewise, for temporaries and outputs that are held: what one pair's regions have at least
# What a process takes of a GPU before it asks for any: 527 MiB on an H200, 618 once torch has run a few kernels. For
# the judge's and a pair's three the shares above have room: they were found beside them. With seven sides 7 GiB of 140
# stayed free, and every row had its graphs.
CONTEXT_BYTES = 640 * 2**20
MOST_SLOTS = 1024
MOST_PROBES = 32
CACHE_FACTOR = 4  # a working set this many times the cache cannot live in it
COPIED_BYTES = 4e9  # that a yardstick's graph moves: a millisecond's work
MOST_COPIES = 256  # of it
CACHE_SPEEDUP = 8  # no cache delivers this many times the memory's peak


class CudaDevice:
    """Judge-owned memory, the state of clocks, and the limits that no kernel passes."""

    shares_contents = True  # what one process holds on the device, no other can read
    deadline_s = 30.0
    has_kernels = True
    most_slots = MOST_SLOTS
    keepalive: CpuKeepalive | None = None
    block_loop: Path | None = None  # a block begins and ends with work on the device, which Python asks for

    def __init__(self, name: str) -> None:
        self.name = name
        self.index = torch.device(name).index or 0
        self._refuse_what_is_not_there()
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

    def _refuse_what_is_not_there(self) -> None:
        if not torch.cuda.is_available():
            raise EnvironmentProblem(
                f"device {self.name} is not there: torch {torch.__version__} sees no CUDA device",
                "use --device cpu, or a machine with an NVIDIA GPU and a torch that was built for it",
            )
        if self.index >= torch.cuda.device_count():
            raise EnvironmentProblem(
                f"device {self.name} is not there: this machine has {torch.cuda.device_count()}",
                "use cuda:0 up to one less than that",
            )
        if importlib.util.find_spec("triton") is None:
            raise EnvironmentProblem("the judge compares outputs on a GPU with Triton, which is not here",
                                     "pip install 'kernwright[gpu]'")  # fmt: skip
        if not driver.attribute(self.index, driver.VMM_WITH_DESCRIPTORS):
            raise EnvironmentProblem(
                f"{self.name} cannot share memory by file descriptor", "update the driver; Pascal and later can"
            )

    def free_bytes(self) -> int:
        """What torch keeps of what the judge has given back, from judgements before this one too, is free."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.index)[0]

    def make_room_for(self, sides: int) -> None:
        self._sides = sides
        self.arena_bytes = min(MOST_BUDGET, max(0, self.free_bytes() - self._contexts_bytes) // self._shares)

    @property
    def _shares(self) -> int:
        return SIDE_SHARE * self._sides + JUDGE_SHARE

    def bytes_to_judge(self, row: Workload) -> int:
        """Regions shrink faster than arenas where there are many sides, and must still hold two calls' outputs."""
        region_share = SIDES_SHARE / self._sides - 1 / self._shares
        lent = max(GPU_FACTOR * row.bytes_min, self.arena_bytes / 2) * self._shares
        region = (SPARE_FACTOR + 1) * row.bytes_min
        beside_judge = self._sides * (region + self.arena_bytes) + JUDGE_FACTOR * row.bytes_min
        return int(max(lent, region / region_share, beside_judge)) + self._contexts_bytes

    @property
    def _contexts_bytes(self) -> int:
        """Of the workers beyond one pair's."""
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
        suffix = "a" if major >= 9 else ""  # the architecture's own instructions, as its kernels are built for
        return {
            "TVM_FFI_CUDA_ARCH_LIST": f"{major}.{minor}{suffix}",
            "CUDA_CACHE_DISABLE": "1",  # the driver's compilations are nobody's to share
        }

    def reads(self) -> tuple[Path, ...]:
        return (self._pool_library.parent,)

    @property
    def peak_bytes_per_s(self) -> float:
        """Both edges of the memory's clock over the whole bus."""
        clock = driver.attribute(self.index, driver.MEMORY_CLOCK_KHZ) * 1e3
        return 2 * clock * driver.attribute(self.index, driver.BUS_WIDTH_BITS) / 8

    def fastest_seconds(self, moved_bytes: int, threads: int, working_set: int = 0) -> float:
        cache = torch.cuda.get_device_properties(self.index).L2_cache_size
        peak = self.peak_bytes_per_s * (1 if working_set > CACHE_FACTOR * cache else CACHE_SPEEDUP)
        return moved_bytes / peak

    def copy_seconds(self, moved_bytes: int, threads: int) -> float:
        """Copies through more memory than the cache holds, replayed as a graph: no launches in between. So many that
        what lies between two graphs, some microseconds, is nothing beside them."""
        size = whole_pages(moved_bytes)
        cache = torch.cuda.get_device_properties(self.index).L2_cache_size
        pairs = max(2, min(64, -(-CACHE_FACTOR * cache // (2 * size))))
        repeats = max(1, min(MOST_COPIES // pairs, round(COPIED_BYTES / (2 * size * pairs))))
        source = torch.zeros((pairs, size), dtype=torch.uint8, device=self.name)
        target = torch.empty_like(source)
        return min(self._replayed(way, target, source, repeats) for way in ways_on(self.name)) / (pairs * repeats)

    def _replayed(self, way: Way, target: Tensor, source: Tensor, repeats: int) -> float:
        way(target[0], source[0])  # a kernel is loaded by its first launch, which no graph may hold
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                for to, own in zip(target, source, strict=True):
                    way(to, own)
        self.keeper.refuse_slowness()
        times = []
        for _ in range(5):
            start, end = (torch.Event(enable_timing=True, device=self.name) for _ in range(2))
            graph.replay()  # keeps the device busy while the next one is launched, which takes a restless host long
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize(self.index)
            times.append(float(start.elapsed_time(end)) / 1e3)
        return sorted(times)[len(times) // 2]

    def block_ms(self, policy: TimingPolicy) -> float:
        return policy.gpu_block_ms

    def probe_slots(self, row: Workload) -> int:
        """So many that their time stands out from a switch between contexts."""
        return max(2, min(MOST_PROBES, self.arena_bytes // (8 * max(1, row.bytes_min))))

    # What a judgement needs of it

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

    def furnish(self, worker: WorkerProcess) -> None:
        self._regions[worker.pid] = Region(worker, self._region_bytes, self.index, self._pool_library)

    def retire(self, worker: WorkerProcess) -> None:
        """After the worker's end."""
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
        return self.keeper.waits_ns() > BUSY_NS

    def is_slow(self, within_s: float) -> bool:
        return not self.keeper.memory_speed.is_full(within_s)

    def take_as_it_is(self) -> None:
        self.keeper.memory_speed.accept()

    def health(self) -> str | None:
        """What is wrong with the judge's own context, if anything: a candidate must not have hurt it."""
        try:
            probe = torch.arange(2**16, device=self.name)
            right = int((probe * 2 - probe).sum()) == 2**15 * (2**16 - 1)
            torch.cuda.synchronize(self.index)
        except RuntimeError as error:
            return f"the GPU's context is broken: {str(error).splitlines()[0]}"
        return None if right else "the GPU computes wrong sums"
