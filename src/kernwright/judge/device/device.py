"""Device: what the judge needs to know of the hardware it measures on. A GPU joins by implementing this."""

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
    """The hardware under the judge: memory to hand out, state to record, limits that no kernel can pass."""

    name: str
    shares_contents: bool  # whether all sides may work on the same contents: where none can see another's memory
    deadline_s: float  # what a call has started on it must be over by then
    has_kernels: bool  # whether a side's work is kernels on a device that can be listed
    capability: tuple[int, int] | None  # of a GPU
    most_slots: int
    keepalive: CpuKeepalive | None  # over its workers' processor, while a judgement runs and there are others
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
