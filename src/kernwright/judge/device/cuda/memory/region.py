"""Region: the memory that a worker's outputs live in. The judge owns it and reads it without asking anyone."""

from __future__ import annotations

import functools
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.device.cuda.memory.lane import Lane
from kernwright.judge.device.cuda.memory.memory_speed import MemorySpeed, memory_speed_of
from kernwright.judge.device.cuda.memory.window import Span, claimed, holds, longer, window_of
from kernwright.judge.device.problems import DeviceFull
from kernwright.judge.process.faults import WorkerFailed
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.protocol.messages import Attach, RegionAddress
from kernwright.judge.session.session import DeviceSlowed
from kernwright.judge.system.cuda_driver import CudaDriverError, LentMemory
from kernwright.tasks.policy import Metric
from kernwright.tasks.tensor import ConcreteTensor

if TYPE_CHECKING:
    from kernwright.judge.device.cuda.memory.changed_slots import ChangedSlots  # which imports Triton

BUSY_NS = 1_000_000  # a kernel of ours that waits this long shares the device: slices are about two milliseconds


def build_pool(folder: Path) -> Path:
    """The worker's end of a region, in a judgement's folder."""
    library = folder / "pool.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # a worker may be another user
    library.write_bytes(_compiled_pool())
    library.chmod(0o755)
    return library


@functools.cache
def _compiled_pool() -> bytes:
    """Compiled once a process: it takes as long as judging a small row does."""
    source = Path(__file__).parents[3] / "worker" / "cuda" / "pool.cc"
    with tempfile.TemporaryDirectory(prefix="kernwright-pool-") as folder:
        library = Path(folder) / "pool.so"
        command = ["c++", "-std=c++17", "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise EnvironmentProblem(f"no C++ compiler: {error}", "install one (c++)") from None
        if done.returncode:
            raise EnvironmentProblem(f"the memory pool does not compile: {done.stderr[-300:]}", "mend the C++ compiler")
        return library.read_bytes()


def lend(size: int, device: int, purpose: str) -> LentMemory:
    """What torch keeps of memory that the judge has given back is free: where there is too little, it gives that up."""
    try:
        try:
            return LentMemory.create(size, device)
        except CudaDriverError:
            torch.cuda.empty_cache()
            return LentMemory.create(size, device)
    except CudaDriverError as error:
        raise DeviceFull(
            f"no {size / 2**30:.1f} GiB on the GPU for {purpose}: {error}",
            "free the GPU's memory, or choose smaller rows with --rows",
        ) from None


class Region:
    """One worker's, for its whole life."""

    def __init__(self, worker: WorkerProcess, size: int, device: int, pool: Path) -> None:
        self.memory = lend(size, device, "a worker's outputs")
        self.bytes: Tensor = torch.as_tensor(self.memory, device=f"cuda:{device}")
        assert self.memory.descriptor is not None
        message = Attach(bytes=self.memory.size, pool=str(pool))
        self.base = worker.request(message, RegionAddress, 60.0, (self.memory.descriptor,)).region
        self.seen: dict[Metric, Span] = {}  # where outputs of a row lay so far
        self._row: object = None

    def begin(self, row: object) -> None:
        """Another row, other places."""
        if row != self._row:
            self._row, self.seen = row, {}

    def offsets(self, pointers: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Where outputs lie in the region. An address means nothing else here: a wrong one reads a wrong output."""
        offsets = [pointer - self.base for pointer in pointers]
        for number, size in enumerate(sizes):
            own = offsets[number :: len(sizes)]
            if own and not 0 <= min(own) <= max(own) <= self.memory.size - size:
                raise WorkerFailed(
                    "an output lies outside the memory that torch hands out: return tensors that torch allocated "
                    "during the call"
                )
        return offsets

    def close(self) -> None:
        torch.cuda.synchronize(self.bytes.device)
        del self.bytes
        self.memory.close()


class OutputKeeper:
    """Where the judge puts a worker's outputs before the clock stops.

    It copies a window of a side's region, which is as long for every side: its own time is the same for all of them.
    Where the window begins is each side's own, since a chain has temporaries below its outputs and a kernel has none.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self._lengths: dict[Metric, int] = {}
        self._row: object = None
        self._copied: Span = (0, 0)  # of the region that was secured last
        self.metric: Metric = "stream"
        self.lane = Lane(device)
        self._buffer = torch.empty(0, dtype=torch.uint8, device=f"cuda:{device}")
        self._changed: ChangedSlots | None = None
        self._spark = torch.empty(256, dtype=torch.uint8, device=f"cuda:{device}")

    def begin(self, row: object) -> None:
        """Another row, another length: it grows to what that row's sides use."""
        if row != self._row:
            self._row, self._lengths = row, {}
            if self._changed is not None:
                self._changed.begin()

    @property
    def changed(self) -> ChangedSlots:
        """For ops that work in place."""
        if self._changed is None:
            from kernwright.judge.device.cuda.memory.changed_slots import ChangedSlots

            self._changed = ChangedSlots(f"cuda:{self.device}")
        return self._changed

    def window(self, region: Region) -> Span:
        """What is copied of a region: a call by itself leaves less than a block of them."""
        return window_of(region.seen.get(self.metric), self._lengths.get(self.metric, 0), region.memory.size)

    def reaches(self, outputs: Span, region: Region, room: int = 0) -> bool:
        """Whether outputs that lie here were inside the window. Where not, the next one has room for all that was seen
        and `room` bytes more."""
        if holds(self.window(region), outputs):
            return True
        seen = region.seen[self.metric] = claimed(region.seen.get(self.metric), outputs, region.memory.size)
        known = self._lengths.get(self.metric, 0)
        self._lengths[self.metric] = min(longer(known, seen, room), region.memory.size)
        return False

    def secure(self, region: Region) -> None:
        start, end = self._copied = self.window(region)
        if self._buffer.numel() < end - start:
            self._buffer = torch.empty(0, dtype=torch.uint8, device=f"cuda:{self.device}")
            self._buffer = torch.empty(end - start, dtype=torch.uint8, device=f"cuda:{self.device}")
        self._buffer[: end - start].copy_(region.bytes[start:end])
        torch.cuda.synchronize(self.device)

    def places(self, offsets: Sequence[int]) -> list[int]:
        """Where outputs at these places of the region lie in what was copied."""
        return [offset - self._copied[0] for offset in offsets]

    def waits_ns(self) -> int:
        """How long a tiny kernel takes; the best of a few, for the host has hiccups of its own."""
        best = 2**62
        for _ in range(5):
            start = time.perf_counter_ns()
            self._spark.fill_(1)
            torch.cuda.synchronize(self.device)
            best = min(best, time.perf_counter_ns() - start)
            if best < BUSY_NS:
                break
        return best

    @property
    def memory_speed(self) -> MemorySpeed:
        """Of the device: it has memory of its own, which only who times has a use for."""
        return memory_speed_of(self.device)

    def refuse_slowness(self) -> None:
        """Before something is timed."""
        if not self.memory_speed.is_full():
            raise DeviceSlowed("the GPU's memory is slower than it was while every worker stands still")

    @property
    def memory(self) -> Tensor:
        """What was copied, byte by byte."""
        return self._buffer

    def as_elements(self, spec: ConcreteTensor) -> Tensor:
        """All of it as the numbers that such a tensor holds."""
        return self._buffer.view(getattr(torch, spec.torch_dtype_name))

    def view(self, place: int, spec: ConcreteTensor) -> Tensor:
        return view_of(self._buffer, place, spec)


def view_of(memory: Tensor, offset: int, spec: ConcreteTensor) -> Tensor:
    dtype = getattr(torch, spec.torch_dtype_name)
    return memory[offset : offset + spec.span_bytes].view(dtype).as_strided(spec.shape, spec.strides)
