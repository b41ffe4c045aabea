"""Census: which kernels each side launches, seen in a pass of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernwright.judge.contents import Pool
from kernwright.judge.party import Party
from kernwright.judge.row_state import RowState
from kernwright.judge.sides import Crew
from kernwright.judge.timing import SideFault, SideName
from kernwright.judge.worker_faults import WorkerCheated, WorkerFailed
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

SEEN: tuple[SideName, ...] = ("baseline", "candidate")


def take_census(crew: Crew, task: Task, states: Sequence[RowState], pool_for: Callable[[Workload], Pool]) -> None:
    """To be called when these workers have nothing left to time."""
    for side in SEEN:
        for state in states:
            if state.fault is not None:
                continue
            try:
                session = crew.open(side, task.op_of(state.row), state.row, 1)
                try:
                    session.fill(0, pool_for(state.row).draw(session.op, session.row))
                    state.kernels[side] = session.census()
                finally:
                    session.close()
            except (SideFault, WorkerFailed, WorkerCheated) as fault:
                state.reasons.append(f"no census of the {side}'s kernels: {fault}")
                break  # whatever became of that worker, the next round has new ones


def refuse_other_kernels(states: Sequence[RowState], baseline: Party, candidate: Party) -> None:
    """A published package is what it launches. Where it ran something else, its time is nobody's."""
    for state in states:
        for side, party in (("baseline", baseline), ("candidate", candidate)):
            seen = state.kernels.get(side)
            names = None if seen is None else [kernel.name for kernel in seen]
            backend = state.ran.backend if state.ran and side == "candidate" else None
            if state.fault is None and (why := party.ran_else(state.row.op, names, backend)):
                state.fail(f"the {side} {why}")
