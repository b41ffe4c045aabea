"""Device: what the judge needs to know of the hardware it measures on. A GPU joins by implementing this."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernwright.core.errors import EnvironmentProblem

if TYPE_CHECKING:  # sessions and pools know the device, not the other way round
    from kernwright.core.op import Op
    from kernwright.judge.contents import Pool
    from kernwright.judge.session import Session
    from kernwright.judge.vigil import Vigil
    from kernwright.judge.worker_process import WorkerProcess
    from kernwright.tasks.candidate import Style
    from kernwright.tasks.policy import TimingPolicy
    from kernwright.tasks.workload import Workload


class Device(Protocol):
    """The hardware under the judge: memory to hand out, state to record, limits that no kernel can pass."""

    name: str
    shares_contents: bool  # whether all sides may work on the same contents: where none can see another's memory
    deadline_s: float  # what a call has started on it must be over by then
    has_kernels: bool  # whether a side's work is kernels on a device that can be listed
    capability: tuple[int, int] | None  # of a GPU
    most_slots: int
    vigil: Vigil | None  # over its workers' processor, while a judgement runs and there are others
    block_loop: Path | None  # that its workers run blocks with; Python where there is none

    def free_bytes(self) -> int: ...

    def make_room_for(self, sides: int) -> None:
        """Before anything is lent: how many sides share its memory. Three, unless it is told otherwise."""
        ...

    def bytes_to_judge(self, row: Workload) -> int:
        """About what judging a row takes: slots of all sides, the judge's copies, its oracles."""
        ...

    def block_bytes(self, row: Workload) -> int:
        """What a block's slots may take of one side's memory, and its outputs of as much again, once it has begun."""
        ...

    def describe(self) -> dict[str, Any]:
        """What it is: recorded once a run."""
        ...

    def state(self) -> dict[str, Any]:
        """Clocks and load right now: recorded before and after."""
        ...

    def worker_processor(self) -> int | None:
        """The processor that workers are pinned to, where pinning is possible."""
        ...

    def environment(self) -> dict[str, str]:
        """What workers on it need in theirs."""
        ...

    def reads(self) -> tuple[Path, ...]:
        """What workers on it must be able to read."""
        ...

    def fastest_seconds(self, moved_bytes: int, threads: int, working_set: int = 0) -> float:
        """No call that moves these bytes can take less: physics, not a measurement. The working set is a block's."""
        ...

    def block_ms(self, policy: TimingPolicy) -> float: ...

    def probe_slots(self, row: Workload) -> int:
        """How many slots a first, coarse time is taken with."""
        ...

    def begin(self, rows: tuple[Workload, ...], folder: Path, one_by_one: bool = False) -> None:
        """Before the first worker: what is needed of the judge's own, built in the folder. `one_by_one`: calls are made
        by themselves, never in blocks, and leave little behind."""
        ...

    def furnish(self, worker: WorkerProcess) -> None:
        """Lends a new worker what it keeps for its whole life."""
        ...

    def retire(self, worker: WorkerProcess) -> None:
        """Takes it back when the worker is gone."""
        ...

    def open_session(self, worker: WorkerProcess, op: Op, row: Workload, style: Style, slots: int) -> Session: ...

    def pool(self, row: Workload, seed: int) -> Pool: ...

    def health(self) -> str | None:
        """What is wrong with the device now, if anything."""
        ...

    def is_busy(self) -> bool:
        """Whether somebody works on it while the judge's workers stand still."""
        ...

    def is_slow(self, within_s: float) -> bool:
        """Whether its memory is slower than it was, and stays so for that long."""
        ...

    def take_as_it_is(self) -> None:
        """Its memory is as fast as it is now, from now on."""
        ...

    def copy_seconds(self, moved_bytes: int, threads: int) -> float:
        """A plain copy that moves as many bytes, measured now."""
        ...


CPU_FACTOR = 40  # over a row's fewest bytes, of three sides and the judge's part, which is as much as theirs


class DeviceFull(EnvironmentProblem):
    """The device has no memory left for what the judge must lend."""


class CpuDevice:
    """The processors of this machine."""

    name = "cpu"
    shares_contents = False
    deadline_s = 30.0
    has_kernels = False
    capability: tuple[int, int] | None = None
    most_slots = 256
    arena_bytes = 256 * 2**20
    vigil: Vigil | None = None
    block_loop: Path | None = None
    _sides = 3

    def free_bytes(self) -> int:
        return available_memory()

    def make_room_for(self, sides: int) -> None:
        self._sides = sides

    def bytes_to_judge(self, row: Workload) -> int:
        return max(CPU_FACTOR * row.bytes_min, 6 * self.arena_bytes) * (self._sides + 3) // 6

    def block_bytes(self, row: Workload) -> int:
        return self.arena_bytes

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "cpu",
            "model": _processor_model(),
            "architecture": platform.machine(),
            "processors": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": platform.release(),
            "driver": None,
        }

    def state(self) -> dict[str, Any]:
        frequencies = []
        for path in sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")):
            if (text := path.read_text().strip()).isdigit():
                frequencies.append(int(text) // 1000)
        return {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load_1min": os.getloadavg()[0],
            "clocks_mhz": frequencies or "not reported by this machine",
            "free_bytes": self.free_bytes(),
        }

    def worker_processor(self) -> int | None:
        usable = sorted(os.sched_getaffinity(0))
        return usable[-1] if len(usable) > 1 else None

    def environment(self) -> dict[str, str]:
        return {}

    def reads(self) -> tuple[Path, ...]:
        return ()

    def fastest_seconds(self, moved_bytes: int, threads: int, working_set: int = 0) -> float:
        """Two 64-byte loads and one 64-byte store a cycle at 6 GHz: beyond any core, in any of its caches."""
        return moved_bytes / (threads * 192 * 6e9)

    def copy_seconds(self, moved_bytes: int, threads: int) -> float:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            source = torch.zeros(max(1, moved_bytes // 2), dtype=torch.uint8)
            target = torch.empty_like(source)
            times = []
            for _ in range(7):
                start = time.perf_counter()
                target.copy_(source)
                times.append(time.perf_counter() - start)
            return sorted(times[1:])[len(times) // 2]
        finally:
            torch.set_num_threads(before)

    def probe_slots(self, row: Workload) -> int:
        return 2

    def block_ms(self, policy: TimingPolicy) -> float:
        return policy.block_ms

    def begin(self, rows: tuple[Workload, ...], folder: Path, one_by_one: bool = False) -> None:
        from kernwright.judge.block_loop import build_block_loop

        self.block_loop = build_block_loop(folder)

    def furnish(self, worker: WorkerProcess) -> None:
        pass

    def retire(self, worker: WorkerProcess) -> None:
        pass

    def open_session(self, worker: WorkerProcess, op: Op, row: Workload, style: Style, slots: int) -> Session:
        from kernwright.judge.session import Session

        return Session(worker, op, row, style, slots)

    def pool(self, row: Workload, seed: int) -> Pool:
        from kernwright.judge.chance import cpu_generator
        from kernwright.judge.content_pool import ContentPool

        return ContentPool.for_row(row, cpu_generator(seed))

    def health(self) -> str | None:
        return None

    def is_busy(self) -> bool:
        return False

    def is_slow(self, within_s: float) -> bool:
        return False

    def take_as_it_is(self) -> None:
        pass


def available_memory() -> int:
    """Host memory that can be had without pushing anyone else out, in bytes."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found.group(1)) * 1024 if found else 0


def find_device(name: str) -> Device:
    if name == "cpu":
        return CpuDevice()
    if re.fullmatch(r"cuda(:\d+)?", name):
        from kernwright.judge.cuda.device import CudaDevice

        return CudaDevice(name)
    raise EnvironmentProblem(f"{name!r} is not a device", "use cpu, cuda or cuda:N")


def _processor_model() -> str:
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    if found:
        return found.group(1)
    part = re.search(r"^CPU part\s*:\s*(.+)$", text, flags=re.MULTILINE)
    implementer = re.search(r"^CPU implementer\s*:\s*(.+)$", text, flags=re.MULTILINE)
    if part and implementer:
        return f"implementer {implementer.group(1)}, part {part.group(1)}"
    return platform.processor() or "unknown"
