"""Timing: mirrored quads of verified blocks, for the baseline, the baseline once more, and the candidate."""

from __future__ import annotations

import math
import random
import statistics
import time
from dataclasses import dataclass, field
from typing import Literal

from kernwright.judge.contract import ErrorFigures
from kernwright.judge.inputs import ContentPool
from kernwright.judge.session import Session, WrongBehaviour
from kernwright.judge.watch import BlockExpectation
from kernwright.judge.worker_process import Block, WorkerCheated, WorkerFailed
from kernwright.ops.definition import Op
from kernwright.tasks.policy import Metric, TimingPolicy
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

SideName = Literal["baseline", "again", "candidate"]  # `again`: the baseline's twin, for the noise band
BLOCK_DEADLINE_S = 120.0
MOST_SLOTS = 256
WALL_CALLS = 12


@dataclass
class Sample:
    """One quad of one metric: every side's two blocks, nanoseconds a call, mirrored in time."""

    metric: Metric
    round: int
    order: list[SideName]
    calls: int
    ns_per_call: dict[SideName, tuple[float, float]]

    def log_ratio(self, over: SideName, under: SideName) -> float:
        """log(over / under) with the mirrored blocks averaged, so that linear drift cancels."""
        a, b = self.ns_per_call[over], self.ns_per_call[under]
        return (math.log(a[0]) + math.log(a[1]) - math.log(b[0]) - math.log(b[1])) / 2

    def mean_us(self, side: SideName) -> float:
        first, second = self.ns_per_call[side]
        return math.sqrt(first * second) / 1e3


class SideFault(Exception):
    """A side broke down or broke a rule while it was timed."""

    def __init__(self, side: SideName, cause: WorkerFailed | WorkerCheated | WrongBehaviour | WrongOutput) -> None:
        self.side, self.cause = side, cause
        super().__init__(str(cause))


class WrongOutput(Exception):
    """A timed block left an output that is wrong."""


@dataclass
class RowTiming:
    """The three sessions of one row in one round, and the blocks run on them."""

    task: Task
    op: Op
    row: Workload
    sessions: dict[SideName, Session]
    pool: ContentPool
    chance: random.Random
    eager: dict[str, ErrorFigures]
    empty_block_ns: float = 0.0
    samples: list[Sample] = field(default_factory=list)

    def measure_protocol(self, repeats: int = 9) -> None:
        """What a block of no calls costs: waking, answering, stopping. Taken off every side's blocks alike.

        It is measured on the baseline's twin, so nothing that a candidate does can move it.
        """
        worker = self.sessions["again"].worker
        self.empty_block_ns = statistics.median(
            worker.run_block([], 0, BLOCK_DEADLINE_S).elapsed_ns for _ in range(repeats)
        )

    def quad(self, metric: Metric, round_number: int, policy: TimingPolicy) -> Sample:
        """Every side once, then every side again in mirrored order; the two halves on contents of their own."""
        sides: list[SideName] = list(self.sessions)
        self.chance.shuffle(sides)
        slots = next(iter(self.sessions.values())).slots
        times: dict[SideName, list[float]] = {side: [] for side in sides}
        calls = 0
        for half in (sides, sides[::-1]):
            contents = [self.pool.draw(self.op, self.row) for _ in range(slots)]
            expectations = [BlockExpectation.of(self.task, self.op, self.row, c, self.eager) for c in contents]
            calls = self._secret_count(slots, metric)
            for side in half:
                session = self.sessions[side]
                order = self.chance.sample(range(slots), calls)
                assigned = self.chance.sample(range(slots), slots)  # which content lies in which slot
                for slot in range(slots):
                    session.fill(slot, contents[assigned[slot]])
                block = self._verified(side, session, metric, order, [expectations[assigned[s]] for s in order])
                times[side].append(self._net(block.elapsed_ns, metric) / calls)
        ns = {side: (pair[0], pair[1]) for side, pair in times.items()}
        sample = Sample(metric, round_number, sides, calls, ns)
        self.samples.append(sample)
        return sample

    def _net(self, elapsed_ns: int, metric: Metric) -> float:
        """A block's time without the protocol's own. A wall call is what its caller waits for: nothing is taken off."""
        return float(elapsed_ns) if metric == "wall" else max(elapsed_ns - self.empty_block_ns, elapsed_ns * 0.05)

    def _secret_count(self, slots: int, metric: Metric) -> int:
        """How many of the slots a block calls: known to nobody beforehand, the same for every side of the half."""
        most = min(slots, WALL_CALLS) if metric == "wall" else slots
        return most if most < 4 else self.chance.randint(most - most // 4, most)

    def _verified(
        self, side: SideName, session: Session, metric: Metric, order: list[int], expected: list[BlockExpectation]
    ) -> Block:
        run = session.worker.run_calls if metric == "wall" else session.worker.run_block
        try:
            used = session.worker.processor_seconds()
            block = run(order, len(session.output_specs), BLOCK_DEADLINE_S)
            outputs = session.snapshot(order, block.pointers)
            session.look_for_damage(order)
            for number, (left, wanted) in enumerate(zip(outputs, expected, strict=True)):
                if problem := wanted.problem(left):
                    raise WrongOutput(f"call {number + 1} of a timed block: {problem}")
            session.worker.refuse_helpers(used, block.elapsed_ns / 1e9)
            session.release()
        except (WorkerFailed, WorkerCheated, WrongBehaviour, WrongOutput) as fault:
            raise SideFault(side, fault) from fault
        return block


def slots_for(call_s: float, bytes_per_slot: int, policy: TimingPolicy, memory: int) -> int:
    """As many distinct slots as one block calls: each is called once, so a block of N calls proves N executions."""
    wanted = math.ceil(policy.block_ms / 1e3 / max(call_s, 1e-7))
    fit = memory // max(1, bytes_per_slot)
    return max(2, min(wanted, fit, MOST_SLOTS))


def call_seconds(session: Session, pool: ContentPool, repeats: int = 3) -> float:
    """A coarse time of one call, to size blocks. Warms the side up; proves nothing."""
    best = math.inf
    for attempt in range(repeats + 1):
        session.fill(attempt % session.slots, pool.draw(session.op, session.row))
        start = time.perf_counter()
        session.worker.run_block([attempt % session.slots], len(session.output_specs), BLOCK_DEADLINE_S)
        best = min(best, time.perf_counter() - start) if attempt else best
        session.release()
    return best
