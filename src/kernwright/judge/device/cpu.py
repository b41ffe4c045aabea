"""CpuDevice: the processors of this machine as a device of the judge."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path
from typing import Any

import torch

from kernwright.core.op import Op
from kernwright.judge.device.block_loop_build import build_block_loop
from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.numerics.secret_rng import cpu_generator
from kernwright.judge.process.cpu_keepalive import CpuKeepalive
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.session.session import Session
from kernwright.judge.system.procfs import available_memory
from kernwright.tasks.candidate import Style
from kernwright.tasks.policy import TimingPolicy
from kernwright.tasks.workload import Workload

CPU_FACTOR = 40  # bytes needed per byte that a call must move, for three sides and an equal part for the judge


class CpuDevice:
    """The processors of this machine."""

    name = "cpu"
    shares_contents = False
    deadline_s = 30.0
    has_kernels = False
    capability: tuple[int, int] | None = None
    max_slots = 256
    arena_bytes = 256 * 2**20
    keepalive: CpuKeepalive | None = None
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
        """Return the time at two 64-byte loads and one 64-byte store per cycle and 6 GHz, which no core exceeds."""
        return moved_bytes / (threads * 192 * 6e9)

    def copy_seconds(self, moved_bytes: int, threads: int) -> float:
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
        self.block_loop = build_block_loop(folder)

    def attach_worker(self, worker: WorkerProcess) -> None:
        pass

    def detach_worker(self, worker: WorkerProcess) -> None:
        pass

    def open_session(self, worker: WorkerProcess, op: Op, row: Workload, style: Style, slots: int) -> Session:
        return Session(worker, op, row, style, slots)

    def pool(self, row: Workload, seed: int) -> Pool:
        return ContentPool.for_row(row, cpu_generator(seed))

    def health(self) -> str | None:
        return None

    def is_busy(self) -> bool:
        return False

    def is_slow(self, within_s: float) -> bool:
        return False

    def accept_memory_speed(self) -> None:
        pass


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
