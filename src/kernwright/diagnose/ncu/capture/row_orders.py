"""RowOrders: the calls that the profiled program makes, for one row of a task and one side."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kernwright.baselines.lookup import find_baseline
from kernwright.core.runtime_interface import STRICT_VARIABLE
from kernwright.judge.contest.worker_spec import baseline_spec, candidate_spec
from kernwright.judge.process.scratch import scratch_folder
from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.system.sandbox import import_folders
from kernwright.tasks.candidate import SHIPPED, load_candidate
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

PROGRAM = "kernwright.diagnose.ncu.capture.row_program"
CALLS = 1  # profiled calls; ncu replays each kernel, so one call gives all counters
WARM_UP = 3  # calls before the profiled ones; they build, compile and tune


class RowOrders(BaseModel):
    """The calls that the profiled program makes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str  # folder
    row: str
    side: SideOrders
    device: str = "cuda"
    calls: int = CALLS
    warm_up: int = WARM_UP


@contextmanager
def row_program(
    task: Task, row: Workload, side: str, device: str = "cuda"
) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Provide the command that calls one side on a row, and its environment. Their files last as long as the context.

    The code runs as this user and in no sandbox, so that a profiler sees it. Judge candidates that you do not trust
    first.

    Args:
        side: name of a baseline, `kernwright` for the shipped op, or the folder of a candidate.
    """
    with scratch_folder() as folder:
        orders, environment = _side(task, row, side, folder / "side", device)
        path = folder / "orders.json"
        path.write_text(
            RowOrders(task=str(task.folder.absolute()), row=row.id, side=orders, device=device).model_dump_json()
        )
        python_path = os.pathsep.join(import_folders())
        yield (sys.executable, "-P", "-s", "-m", PROGRAM, str(path)), {**environment, "PYTHONPATH": python_path}


def _side(task: Task, row: Workload, side: str, folder: Path, device: str) -> tuple[SideOrders, dict[str, str]]:
    if side == SHIPPED:
        return SideOrders(kind="shipped", op=row.op), {STRICT_VARIABLE: "1"}
    if is_baseline(task, side):
        spec = baseline_spec(find_baseline(task, side), task, folder, device, [row.op])
    else:
        spec = candidate_spec(load_candidate(Path(side)), folder, device)
    spec.scratch.mkdir(parents=True, exist_ok=True)
    # Relative cache folders of compiled baselines are for workers that the judge starts in their scratch folder.
    environment = {name: value for name, value in spec.environment.items() if not value.startswith("/proc/self/cwd")}
    return spec.orders.for_op(row.op), environment


def is_baseline(task: Task, side: str) -> bool:
    """Return whether a name means a baseline, and not the folder of a candidate."""
    return not Path(side, "candidate.toml").is_file()


def chosen_rows(task: Task, pattern: str | None, sides: Sequence[str]) -> tuple[Workload, ...]:
    """Return the rows to profile: those that match, else the first production row. A candidate has rows of one op."""
    ops = {load_candidate(Path(side)).file.op for side in sides if side != SHIPPED and not is_baseline(task, side)}
    op = ops.pop() if len(ops) == 1 else None
    rows = task.select(pattern, op, "production" if pattern is None else "smoke")
    return rows if pattern is not None else rows[:1]
