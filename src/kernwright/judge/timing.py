"""Timing: mirrored quads of verified blocks, for the baseline, the baseline once more, and the candidate."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass
from typing import Literal

from kernwright.judge.cases import Case, distributions_of
from kernwright.judge.contract import ErrorFigures
from kernwright.judge.correctness import case_problems
from kernwright.judge.inputs import ContentPool, Inputs
from kernwright.judge.session import Outputs, Session, WrongBehaviour
from kernwright.judge.watch import BlockExpectation
from kernwright.judge.worker_process import Block, WorkerCheated, WorkerFailed
from kernwright.ops.definition import Op
from kernwright.tasks.policy import Metric, TimingPolicy
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

Content = tuple[Inputs, BlockExpectation]
SideName = Literal["baseline", "again", "candidate"]  # `again`: the baseline's twin, for the noise band
BLOCK_DEADLINE_S = 120.0
MOST_SLOTS = 256
WALL_CALLS = 4
MOST_REDONE = 3  # times that a half is run again because the machine was busy with something else
MOST_WAITING = 0.02  # share of a block that a worker may wait for its processor
MOST_AUDITED = 8  # calls of an audit's block that get inputs which no timed block has
LEAST_WAITING_NS = 250_000  # waking and stopping a worker takes this much at times, on a quiet machine too


@dataclass
class Sample:
    """One quad of one metric: every side's two blocks, nanoseconds a call, mirrored in time."""

    metric: Metric
    round: int
    order: list[SideName]
    redone: int
    busy: bool
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

    op: Op
    row: Workload
    sessions: dict[SideName, Session]
    pool: ContentPool
    chance: random.Random
    eager: dict[str, ErrorFigures]
    empty_block_ns: float = 0.0

    def measure_protocol(self, repeats: int = 9) -> None:
        """What a block of no calls costs: waking, answering, stopping. Taken off every side's blocks alike.

        It is measured on the baseline's twin, so nothing that a candidate does can move it.
        """
        try:
            self.empty_block_ns = empty_block_ns(self.sessions["again"], repeats)
        except (WorkerFailed, WorkerCheated) as fault:
            raise SideFault("again", fault) from fault

    def open_loops(self) -> str | None:
        """Readies `device` on every side; the reason where one side cannot have it."""
        for side, session in sorted(self.sessions.items(), key=lambda item: item[0] != "candidate"):
            try:
                if reason := session.open_loop():
                    return f"{side}: {reason}"
            except (WorkerFailed, WorkerCheated) as fault:
                raise SideFault(side, fault) from fault
        return None

    def quad(self, metric: Metric, round_number: int) -> Sample:
        """Every side once, then every side again in mirrored order; the two halves on contents of their own."""
        sides: list[SideName] = list(self.sessions)
        self.chance.shuffle(sides)
        first, redone_first, busy_first = self._quiet_half(metric, sides)
        second, redone_second, busy_second = self._quiet_half(metric, sides[::-1])
        ns = {side: (first[side], second[side]) for side in sides}
        return Sample(metric, round_number, sides, redone_first + redone_second, busy_first or busy_second, ns)

    def _quiet_half(self, metric: Metric, sides: list[SideName]) -> tuple[dict[SideName, float], int, bool]:
        """A half in which no side was kept waiting for its processor; after a few tries, whatever the machine gives.

        What decides is the kernel's count of the time that a ready worker had no processor, never how long the block
        took. All sides are run again, on new contents: what was seen once proves nothing a second time.
        """
        redone = 0
        times, waited = self._half(metric, sides)
        while waited and redone < MOST_REDONE:
            times, waited = self._half(metric, sides)
            redone += 1
        return times, redone, waited

    def _half(self, metric: Metric, sides: list[SideName]) -> tuple[dict[SideName, float], bool]:
        """One block of every side. The candidate's contents are its own: what the others held would be no help."""
        slots = next(iter(self.sessions.values())).slots
        if metric == "wall":
            slots = min(slots, WALL_CALLS)
        calls = slots if slots < 4 else self.chance.randint(slots - slots // 4, slots)
        shared, own = self._contents(slots), self._contents(slots)
        times: dict[SideName, float] = {}
        waited = False
        for side in sides:
            block = self._block(side, metric, calls, own if side == "candidate" else shared)
            exchanges = calls if metric == "wall" else 1
            waited |= block.waiting_ns > max(MOST_WAITING * block.elapsed_ns, exchanges * LEAST_WAITING_NS)
            times[side] = self._net(block.elapsed_ns, exchanges) / calls
        return times, waited

    def _contents(self, count: int) -> list[Content]:
        contents = [self.pool.draw(self.op, self.row) for _ in range(count)]
        return [(c, BlockExpectation.of(self.op, self.row, c, self.eager)) for c in contents]

    def _block(self, side: SideName, metric: Metric, calls: int, contents: list[Content]) -> Block:
        """Which slots hold contents, which content lies in which, which are called, in which order: all secret."""
        session = self.sessions[side]
        self._prepare(side)
        chosen = self.chance.sample(range(session.slots), len(contents))
        order = self.chance.sample(range(len(contents)), calls)
        slots, expected = [chosen[i] for i in order], [contents[i][1] for i in order]
        try:
            if metric == "wall":
                block = self._one_by_one(session, [(chosen[i], contents[i][0]) for i in order])
            else:
                for slot, (content, _) in zip(chosen, contents, strict=True):
                    session.fill(slot, content)
                session.arm()
                block = session.worker.run_block(
                    slots, len(session.output_specs), BLOCK_DEADLINE_S, with_python=metric == "stream"
                )
            self._verify(session, block, slots, expected)
        except (WorkerFailed, WorkerCheated, WrongBehaviour, WrongOutput) as fault:
            raise SideFault(side, fault) from fault
        return block

    def _one_by_one(self, session: Session, calls: list[tuple[int, Inputs]]) -> Block:
        """`wall`: a call's contents are written when the call before it is over and the worker stands still."""
        blocks = []
        for slot, content in calls:
            session.fill(slot, content)
            blocks.append(session.worker.run_block([slot], len(session.output_specs), BLOCK_DEADLINE_S))
        return Block(
            sum(block.elapsed_ns for block in blocks),
            sum(block.processor_ns for block in blocks),
            sum(block.ready_ns for block in blocks),
            tuple(pointer for block in blocks for pointer in block.pointers),
        )

    def _verify(self, session: Session, block: Block, slots: list[int], expected: list[BlockExpectation]) -> None:
        outputs = self._collect(session, block, slots)
        for number, (left, wanted) in enumerate(zip(outputs, expected, strict=True)):
            if problem := wanted.problem(left):
                raise WrongOutput(f"call {number + 1} of a timed block: {problem}")

    def _collect(self, session: Session, block: Block, slots: list[int]) -> list[Outputs]:
        """What a block left. Nobody may have helped with it, neither in the block nor while it is being read."""
        session.worker.refuse_helpers(block)
        outputs = session.snapshot(slots, block.pointers)
        session.look_for_damage(slots)
        session.worker.refuse_stirring()
        return outputs

    def audit(self, task: Task) -> None:
        """A block of the candidate that looks like a timed one and is none: inputs of every kind, the full contract.

        Timed blocks hold ordinary inputs. A side that is careful only while it is asked call by call shows here.
        """
        session = self.sessions["candidate"]
        kinds = ["normal"] * session.slots
        for slot in self.chance.sample(range(session.slots), min(session.slots, MOST_AUDITED)):
            kinds[slot] = self.chance.choice(distributions_of(self.op))
        cases = [Case(self.row, kind) for kind in kinds]
        self._audit(task, session, cases, self.pool)

    def _audit(self, task: Task, session: Session, cases: list[Case], pool: ContentPool) -> None:
        try:
            session.prepare()
            contents = [pool.draw(self.op, case.row, case.distribution) for case in cases]
            for slot, content in enumerate(contents):
                session.fill(slot, content)
            session.arm()
            order = self.chance.sample(range(len(cases)), len(cases))
            block = session.worker.run_block(order, len(session.output_specs), BLOCK_DEADLINE_S)
            for slot, outputs in zip(order, self._collect(session, block, order), strict=True):
                if problems := case_problems(task, cases[slot], contents[slot], outputs, pool):
                    raise WrongOutput(f"in a run of calls: {problems[0]}")
        except (WorkerFailed, WorkerCheated, WrongBehaviour, WrongOutput) as fault:
            raise SideFault("candidate", fault) from fault

    def audit_neighbour(self, task: Task, case: Case) -> None:
        """A run of calls at another size, on a worker that has seen all of the timed ones."""
        try:
            session = Session(self.sessions["candidate"].worker, self.op, case.row, "returns", 2)
        except (WorkerFailed, WorkerCheated) as fault:
            raise SideFault("candidate", fault) from fault
        try:
            self._audit(task, session, [case, case], self.pool)
        finally:
            session.close()

    def _prepare(self, side: SideName) -> None:
        try:
            self.sessions[side].prepare()
        except (WorkerFailed, WorkerCheated) as fault:
            raise SideFault(side, fault) from fault

    def _net(self, elapsed_ns: int, exchanges: int) -> float:
        """A block's time without the protocol's own: waking the worker, its answer, stopping it."""
        return max(elapsed_ns - exchanges * self.empty_block_ns, elapsed_ns * 0.05)


def slots_for(call_s: float, bytes_per_slot: int, policy: TimingPolicy, memory: int) -> int:
    """As many distinct slots as one block calls: each is called once, so a block of N calls proves N executions."""
    wanted = math.ceil(policy.block_ms / 1e3 / max(call_s, 1e-7))
    fit = memory // max(1, bytes_per_slot)
    return max(2, min(wanted, fit, MOST_SLOTS))


def empty_block_ns(session: Session, repeats: int = 9) -> float:
    """What a block of no calls costs this session's worker."""
    return statistics.median(session.worker.run_block([], 0, BLOCK_DEADLINE_S).elapsed_ns for _ in range(repeats))


def call_seconds(session: Session, pool: ContentPool, repeats: int = 3) -> float:
    """A coarse time of one call, to size blocks. Warms the side up; proves nothing."""
    best = math.inf
    for attempt in range(repeats + 1):
        slot = attempt % session.slots
        session.prepare()
        session.fill(slot, pool.draw(session.op, session.row))
        block = session.worker.run_block([slot], len(session.output_specs), BLOCK_DEADLINE_S)
        best = min(best, block.elapsed_ns) if attempt else best
    return max(best - empty_block_ns(session), 1e3) / 1e9
