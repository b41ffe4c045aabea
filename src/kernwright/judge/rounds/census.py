"""Census: the kernels that each side launches, or on a CPU its operators of torch, recorded in a separate pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kernwright.judge.contest.faults import SideFault
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.process.faults import WorkerFault
from kernwright.judge.protocol.messages import CensusSource
from kernwright.judge.record.sample import SideName
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
    """Record the kernels of every side on every row that a pair still waits for.

    Call this when these workers have nothing left to time. A baseline's twin launches the same kernels and is skipped.
    Untrusted sides are profiled, because during a graph's capture a call may launch something else. A quick run is no
    evidence: there a GPU's calls are not profiled, since a profiler takes 2.8 s to start in a worker on an H200.
    """
    quick = any(pair.quick for pair in pairs)
    for side in dict.fromkeys(side for pair in pairs for side in (pair.pair.baseline, pair.pair.candidate)):
        for row in rows:
            waiting = [pair for pair in pairs if side in pair.pair.roles and pair.waits_for(row)]
            if not waiting:
                continue
            source: CensusSource = "either" if side in trusted else "graph" if quick else "profiler"
            try:
                kernels = _kernels(group, side, task, row, pool_for(row), source)
            except (SideFault, WorkerFault) as fault:
                for pair in waiting:
                    pair.on(row).reasons.append(f"no census of the {pair.pair.roles[side]}'s kernels: {fault}")
                break  # this worker may be unusable; the next round starts new ones
            for pair in waiting:
                pair.on(row).kernels[pair.pair.roles[side]] = kernels


def _kernels(
    group: WorkerGroup, side: SideName, task: Task, row: Workload, pool: Pool, source: CensusSource
) -> list[Kernel]:
    session = group.open(side, task.op_of(row), row, 1)
    try:
        session.fill(0, pool.draw(session.op, session.row))
        return session.census(source)
    finally:
        session.close()


def refuse_other_kernels(pair: PairState) -> None:
    """Fail rows on which a published package launched other kernels than its own: those times are not its times."""
    for state in pair.states:
        for side, contestant in (("baseline", pair.baseline), ("candidate", pair.candidate)):
            seen = state.kernels.get(side)
            names = None if seen is None else [kernel.name for kernel in seen]
            backend = state.ran.backend if state.ran and side == "candidate" else None
            if state.pending and (why := contestant.ran_else(state.row.op, names, backend)):
                state.fail(f"the {side} {why}")
