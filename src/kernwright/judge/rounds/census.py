"""Census: which kernels each side launches, seen in a pass of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kernwright.judge.contest.faults import SideFault
from kernwright.judge.contest.pair import SideName
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.process.faults import WorkerCheated, WorkerFailed
from kernwright.judge.record.verdict import Kernel
from kernwright.judge.rounds.pair_state import PairState
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload


def take_census(
    group: WorkerGroup,
    task: Task,
    rows: Sequence[Workload],
    pairs: Sequence[PairState],
    pool_for: Callable[[Workload], Pool],
    trusted: Collection[SideName],
) -> None:
    """To be called when these workers have nothing left to time. Baselines' twins launch what they do. Sides that are
    not trusted are profiled: in a graph's capture a call may do something else."""
    for side in dict.fromkeys(side for pair in pairs for side in (pair.pair.baseline, pair.pair.candidate)):
        for row in rows:
            waiting = [pair for pair in pairs if side in pair.pair.roles and pair.waits_for(row)]
            if not waiting:
                continue
            try:
                kernels = _kernels(group, side, task, row, pool_for(row), side not in trusted)
            except (SideFault, WorkerFailed, WorkerCheated) as fault:
                for pair in waiting:
                    pair.on(row).reasons.append(f"no census of the {pair.pair.roles[side]}'s kernels: {fault}")
                break  # whatever became of that worker, the next round has new ones
            for pair in waiting:
                pair.on(row).kernels[pair.pair.roles[side]] = kernels


def _kernels(group: WorkerGroup, side: SideName, task: Task, row: Workload, pool: Pool, profiled: bool) -> list[Kernel]:
    session = group.open(side, task.op_of(row), row, 1)
    try:
        session.fill(0, pool.draw(session.op, session.row))
        return session.census(profiled)
    finally:
        session.close()


def refuse_other_kernels(pair: PairState) -> None:
    """A published package is what it launches. Where it ran something else, its time is nobody's."""
    for state in pair.states:
        for side, contestant in (("baseline", pair.baseline), ("candidate", pair.candidate)):
            seen = state.kernels.get(side)
            names = None if seen is None else [kernel.name for kernel in seen]
            backend = state.ran.backend if state.ran and side == "candidate" else None
            if state.pending and (why := contestant.ran_else(state.row.op, names, backend)):
                state.fail(f"the {side} {why}")
