"""Region: the memory for a worker's outputs, which the judge owns and can read directly."""

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
from kernwright.judge.device.cuda.memory.host_staging import HostStaging
from kernwright.judge.device.cuda.memory.memory_speed import MemorySpeed, memory_speed_of
from kernwright.judge.device.cuda.memory.window import Span, contains, grown_span, window_length, window_of
from kernwright.judge.device.problems import DeviceFull
from kernwright.judge.process.faults import WorkerFailed
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.protocol.messages import Attach, RegionAddress
from kernwright.judge.session.session import DeviceSlowed
from kernwright.judge.system.cuda_driver import CudaDriverError, LentMemory
from kernwright.tasks.policy import Metric
from kernwright.tasks.tensor import ConcreteTensor

if TYPE_CHECKING:
    from kernwright.judge.device.cuda.memory.changed_slots import ChangedSlots  # this module imports Triton

BUSY_NS = 1_000_000  # a tiny kernel that takes longer waits for other work; time slices are about two milliseconds


def build_pool(folder: Path) -> Path:
    """Build the library with the worker's memory pool in a judgement's folder."""
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
    """Return the compiled library, once per process because compiling takes as long as judging a small row."""
    source = Path(__file__).parents[3] / "worker" / "cuda" / "pool.cc"
    with tempfile.TemporaryDirectory(prefix="kernwright-pool-") as folder:
        library = Path(folder) / "pool.so"
        command = ["c++", "-std=c++17", "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise EnvironmentProblem(f"no C++ compiler: {error}", "install one (c++)") from None
        if done.returncode:
            raise EnvironmentProblem(f"the memory pool does not compile: {done.stderr[-300:]}", "fix the C++ compiler")
        return library.read_bytes()


def lend(size: int, device: int, purpose: str) -> LentMemory:
    """Allocate memory to lend to a worker. If there is too little, free torch's cached blocks and try again."""
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
    """The memory for the outputs of one worker, for its whole life."""

    def __init__(self, worker: WorkerProcess, size: int, device: int, pool: Path) -> None:
        self.memory = lend(size, device, "a worker's outputs")
        self.bytes: Tensor = torch.as_tensor(self.memory, device=f"cuda:{device}")
        assert self.memory.descriptor is not None
        message = Attach(bytes=self.memory.size, pool=str(pool))
        self.base = worker.request(message, RegionAddress, 60.0, (self.memory.descriptor,)).region
        self.seen: dict[Metric, Span] = {}  # the span that contained all outputs of the row so far
        self._row: object = None

    def begin(self, row: object) -> None:
        """Begin a row. Another row has its outputs elsewhere."""
        if row != self._row:
            self._row, self.seen = row, {}

    def offsets(self, pointers: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Return the offsets of outputs in the region. A wrong address from a worker only leads to a wrong output."""
        offsets = [pointer - self.base for pointer in pointers]
        for number, size in enumerate(sizes):
            of_output = offsets[number :: len(sizes)]
            if of_output and not 0 <= min(of_output) <= max(of_output) <= self.memory.size - size:
                raise WorkerFailed(
                    "an output is outside torch's memory pool: return tensors that torch allocated during the call"
                )
        return offsets

    def close(self) -> None:
        torch.cuda.synchronize(self.bytes.device)
        del self.bytes
        self.memory.close()


class OutputKeeper:
    """The judge's copy of a worker's outputs, taken before the clock stops.

    It copies a window of the side's region. The window has the same length for all sides, so that the copy takes the
    same time. Its start differs, since an eager chain has temporaries below its outputs and a fused kernel has none.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self._lengths: dict[Metric, int] = {}
        self._row: object = None
        self._copied: Span = (0, 0)  # the window that was copied last
        self.metric: Metric = "stream"
        self.staging = HostStaging(device)
        self._buffer = torch.empty(0, dtype=torch.uint8, device=f"cuda:{device}")
        self._changed: ChangedSlots | None = None
        self._probe = torch.empty(256, dtype=torch.uint8, device=f"cuda:{device}")

    def begin(self, row: object) -> None:
        """Begin a row. For another row the window starts empty and grows to the size that the row's sides use."""
        if row != self._row:
            self._row, self._lengths = row, {}
            if self._changed is not None:
                self._changed.begin()

    @property
    def changed(self) -> ChangedSlots:
        """The copies of slots, for ops that work in place."""
        if self._changed is None:
            from kernwright.judge.device.cuda.memory.changed_slots import ChangedSlots

            self._changed = ChangedSlots(f"cuda:{self.device}")
        return self._changed

    def window(self, region: Region) -> Span:
        """Return the window of a region for the current metric. A single call needs less than a block."""
        return window_of(region.seen.get(self.metric), self._lengths.get(self.metric, 0), region.memory.size)

    def covers(self, outputs: Span, region: Region, extra_bytes: int = 0) -> bool:
        """Return whether the window contains these outputs. If not, grow it to contain them and `extra_bytes` more."""
        if contains(self.window(region), outputs):
            return True
        seen = region.seen[self.metric] = grown_span(region.seen.get(self.metric), outputs, region.memory.size)
        length = self._lengths.get(self.metric, 0)
        self._lengths[self.metric] = min(window_length(length, seen, extra_bytes), region.memory.size)
        return False

    def secure(self, region: Region) -> None:
        """Copy the window of a region and wait for the copy."""
        start, end = self._copied = self.window(region)
        if self._buffer.numel() < end - start:
            self._buffer = torch.empty(0, dtype=torch.uint8, device=f"cuda:{self.device}")
            self._buffer = torch.empty(end - start, dtype=torch.uint8, device=f"cuda:{self.device}")
        self._buffer[: end - start].copy_(region.bytes[start:end])
        torch.cuda.synchronize(self.device)

    def places(self, offsets: Sequence[int]) -> list[int]:
        """Convert offsets in the region to offsets in the copy."""
        return [offset - self._copied[0] for offset in offsets]

    def response_ns(self) -> int:
        """Return the time of a tiny kernel, the best of a few because the host may be delayed too."""
        best = 2**62
        for _ in range(5):
            start = time.perf_counter_ns()
            self._probe.fill_(1)
            torch.cuda.synchronize(self.device)
            best = min(best, time.perf_counter_ns() - start)
            if best < BUSY_NS:
                break
        return best

    @property
    def memory_speed(self) -> MemorySpeed:
        """The memory speed of the device. It allocates memory, so it is created only when something is timed."""
        return memory_speed_of(self.device)

    def require_full_speed(self) -> None:
        """Raise if the device's memory stays slow, before something is timed."""
        if not self.memory_speed.wait_until_fast():
            raise DeviceSlowed("the GPU's memory is slower than before although every worker is stopped")

    @property
    def memory(self) -> Tensor:
        """The bytes of the copy."""
        return self._buffer

    def as_elements(self, spec: ConcreteTensor) -> Tensor:
        """Return the whole copy as elements of the tensor's dtype."""
        return self._buffer.view(getattr(torch, spec.torch_dtype_name))

    def view(self, place: int, spec: ConcreteTensor) -> Tensor:
        return view_of(self._buffer, place, spec)


def view_of(memory: Tensor, offset: int, spec: ConcreteTensor) -> Tensor:
    dtype = getattr(torch, spec.torch_dtype_name)
    return memory[offset : offset + spec.span_bytes].view(dtype).as_strided(spec.shape, spec.strides)
