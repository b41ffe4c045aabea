"""Device: the interface of the hardware that the judge measures on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from kernwright.core.op import Op
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.process.cpu_keepalive import CpuKeepalive
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.session.session import Session
from kernwright.tasks.candidate import Style
from kernwright.tasks.policy import TimingPolicy
from kernwright.tasks.workload import Workload


class Device(Protocol):
    """The hardware that the judge measures on: memory to lend, state to record, limits that no kernel can exceed."""

    name: str
    shares_contents: bool  # whether all sides may use the same contents, because no side can read another's memory
    deadline_s: float  # time limit for the work that a call started on the device
    has_kernels: bool  # whether calls launch kernels that can be listed
    capability: tuple[int, int] | None  # compute capability of a GPU
    max_slots: int
    keepalive: CpuKeepalive | None  # keep-alive of the workers' processor, while a judgement runs
    block_loop: Path | None  # library with the loop that workers run blocks with; None for the loop in Python

    def free_bytes(self) -> int: ...

    def make_room_for(self, sides: int) -> None:
        """Set the number of sides that share the memory, before any memory is lent. The default is three."""
        ...

    def bytes_to_judge(self, row: Workload) -> int:
        """Return roughly the memory needed to judge a row: slots of all sides, the judge's copies and oracles."""
        ...

    def block_bytes(self, row: Workload) -> int:
        """Return the maximum size of a block's slots in one side's memory. Its outputs may take as much again."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the identity of the device, which is recorded once per run."""
        ...

    def state(self) -> dict[str, Any]:
        """Return current clocks and load, which are recorded before and after a judgement."""
        ...

    def worker_processor(self) -> int | None:
        """Return the processor that workers are pinned to; None if pinning is not possible."""
        ...

    def environment(self) -> dict[str, str]:
        """Return the environment variables that workers on this device need."""
        ...

    def reads(self) -> tuple[Path, ...]:
        """Return the paths that workers on this device must be able to read."""
        ...

    def fastest_seconds(self, moved_bytes: int, threads: int, working_set: int = 0) -> float:
        """Return a physical lower limit for the time to move these bytes. `working_set` is that of a block."""
        ...

    def block_ms(self, policy: TimingPolicy) -> float: ...

    def probe_slots(self, row: Workload) -> int:
        """Return the number of slots for the first, coarse measurement."""
        ...

    def begin(self, rows: tuple[Workload, ...], folder: Path, one_by_one: bool = False) -> None:
        """Prepare a judgement before its first worker starts. Libraries are built in the folder.

        `one_by_one` says that calls are never made in blocks, so that they need little memory for outputs.
        """
        ...

    def attach_worker(self, worker: WorkerProcess) -> None:
        """Lend a new worker the memory that it keeps for its whole life."""
        ...

    def detach_worker(self, worker: WorkerProcess) -> None:
        """Free the memory of a worker that has ended."""
        ...

    def open_session(self, worker: WorkerProcess, op: Op, row: Workload, style: Style, slots: int) -> Session: ...

    def pool(self, row: Workload, seed: int) -> Pool: ...

    def health(self) -> str | None:
        """Return the device's problem, or None if it works."""
        ...

    def is_busy(self) -> bool:
        """Return whether other work runs on the device while the judge's workers are stopped."""
        ...

    def is_slow(self, within_s: float) -> bool:
        """Return whether the memory is slower than before and stays so for this time."""
        ...

    def accept_memory_speed(self) -> None:
        """Take the current memory speed as the reference from now on."""
        ...

    def copy_seconds(self, moved_bytes: int, threads: int) -> float:
        """Measure a plain copy that moves this many bytes."""
        ...
