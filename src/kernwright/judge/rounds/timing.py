"""Timing: mirrored quads of verified blocks, for baselines, their twins and contenders."""

from __future__ import annotations

import contextlib
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernwright.core.op import Op
from kernwright.judge.contest.faults import AttributedTo, SideFault, WrongOutput
from kernwright.judge.numerics.cases import Case, distributions_of
from kernwright.judge.numerics.contents import Contents, EagerErrors, Pool
from kernwright.judge.numerics.contracts import Standard
from kernwright.judge.numerics.correctness import case_problems
from kernwright.judge.numerics.expectations import Tolerances
from kernwright.judge.numerics.inputs import HARSH
from kernwright.judge.process.block import Block
from kernwright.judge.process.faults import WorkerCheated, WorkerFailed
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.record.sample import Quad, SideName
from kernwright.judge.rounds.audit_contents import AuditContents
from kernwright.judge.rounds.output_release import ReleaseTimes
from kernwright.judge.rounds.overhead import IdleTimes, Overhead
from kernwright.judge.rounds.quad import DiscardedBlock, HalfQuad, quad_of
from kernwright.judge.session.long_run import LongRun, slots_of_long_run
from kernwright.judge.session.session import OutputsMoved, Session
from kernwright.tasks.candidate import Style
from kernwright.tasks.policy import Metric
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

SessionOpener = Callable[[WorkerProcess, Op, Workload, Style, int], Session]
MOST_REDONE = 3  # repeats of a half because a side waited for a processor
MOST_MOVES = 12  # moves of a side's outputs allowed in one round of a metric
WANDERING = "its outputs keep moving to other addresses"
MOST_WAITING = 0.02  # share of a block that a worker may wait for a processor
LEAST_WAITING_NS = 250_000  # waking and stopping a worker can take this long on a quiet machine


@dataclass
class RowTiming:
    """The sessions of one row in one round, and the blocks run on them."""

    op: Op
    row: Workload
    sessions: dict[SideName, Session]
    pool: Pool
    rng: random.Random
    eager: EagerErrors
    tolerances: Tolerances
    trusted: frozenset[SideName] = frozenset()
    twins: Sequence[SideName] = ("again",)  # the overhead is measured on the first
    open_session: SessionOpener = Session
    shares_contents: bool = False
    stream_calls: Mapping[SideName, int] = field(default_factory=dict)  # largest `stream` block; default: all slots
    overhead: Overhead = field(default_factory=Overhead)
    sides: list[SideName] = field(default_factory=list)  # the sides of the next quads
    _moves: Counter[SideName] = field(default_factory=Counter)
    _stream_ns: dict[SideName, list[float]] = field(default_factory=dict)  # per call, of this round's blocks
    _release_times: ReleaseTimes = field(default_factory=ReleaseTimes)
    _idle_times: IdleTimes = field(default_factory=IdleTimes)

    def begin(self, metric: Metric, sides: Sequence[SideName]) -> None:
        """Select the metric and sides of the next quads, and measure the overhead."""
        self.sides = list(sides)
        self._moves.clear()
        self._idle_times = IdleTimes()
        self._release_times.disturb(*self.sessions)
        for side in self.sides:
            session = self.sessions[side]
            self._refuse_company(side)
            session.begin(metric)
            if session.outputs_may_move and metric != "stream":  # sessions are warmed up for `stream` when they open
                with AttributedTo(side):
                    warm_up(session, self.pool, metric, self._most_calls(side, metric))  # shows where the outputs lie
        self._measure_overhead(metric)

    @property
    def _twin(self) -> SideName:
        return next(side for side in self.twins if side in self.sides)

    def _measure_overhead(self, metric: Metric) -> None:
        """Measure the overhead of the protocol. It is the same for all sides."""
        self._release_times.disturb(self._twin)
        with AttributedTo(self._twin):
            self.overhead = Overhead.of(self.sessions[self._twin], metric, self._most_calls(self._twin, metric))

    def open_loop(self, side: SideName) -> str | None:
        """Prepare `device` on a side. Return the reason if it is unavailable."""
        with AttributedTo(side):
            return self.sessions[side].open_loop()

    def quad(self, metric: Metric, round_number: int) -> Quad:
        """Run one block of every side, then one of each in mirrored order. The halves have different contents."""
        sides = list(self.sides)
        self.rng.shuffle(sides)
        if metric == "wall" and self.sessions[self._twin].protocol_drifts:
            self._measure_overhead(metric)
        before = Counter(self._moves)
        first, second = self._quiet_half(metric, sides), self._quiet_half(metric, sides[::-1])
        quad = quad_of(metric, round_number, sides, first, second, self._moves - before)
        if metric == "stream":
            for side, ns in quad.ns_per_call.items():
                self._stream_ns.setdefault(side, []).extend(ns)
        return quad

    def _quiet_half(self, metric: Metric, sides: list[SideName]) -> HalfQuad:
        """Return a half in which no side waited for a processor or, after a few repeats, the last one.

        The kernel's count of the time that a ready worker had no processor decides, never the length of the block. All
        sides run again on new contents, since contents that were seen once prove nothing a second time.

        A half is also repeated when a side's outputs moved. A side chooses where its outputs lie. So that it cannot
        discard a slow block by moving them, the slowest of its blocks counts for an untrusted side.
        """
        redone = 0
        tries: dict[SideName, list[DiscardedBlock]] = {}
        while True:
            try:
                half = self._half(metric, sides)
            except OutputsMoved as moved:
                self._note_move(moved.side)
                if moved.side not in self.trusted:
                    one = DiscardedBlock(moved.block.elapsed_ns, moved.outputs.calls, self.overhead)
                    tries.setdefault(moved.side, []).append(one)
                self._measure_overhead(metric)  # there may be more to read back now, on every side
                continue
            if not half.waited or redone >= MOST_REDONE:
                half.tries, half.redone = tries, redone
                return half
            redone += 1

    def _note_move(self, side: SideName) -> None:
        self._moves[side] += 1
        if self._moves[side] > MOST_MOVES:
            raise SideFault(side, WorkerFailed(WANDERING)) from None

    def _half(self, metric: Metric, sides: list[SideName]) -> HalfQuad:
        """Run one block of every side. Where workers could read each other's memory, untrusted sides get contents of
        their own."""
        calls = self._calls(metric)
        sharing = [side for side in sides if self.shares_contents or side in self.trusted]
        shared = self._draw(max(calls[side] for side in sharing))
        own = {side: self._draw(calls[side]) for side in sides if side not in sharing}
        half = HalfQuad(overhead=self.overhead)
        for side in sides:
            block = half.blocks[side] = self._block(side, metric, calls[side], own.get(side, shared))
            half.calls[side] = calls[side]
            exchanges = half.exchanges[side] = calls[side] if metric == "wall" else 1
            if block.waiting_ns > max(MOST_WAITING * block.elapsed_ns, exchanges * LEAST_WAITING_NS):
                half.waited |= {side}
            if metric != "wall" and side in self.trusted and self.sessions[side].tells_events:
                half.event_ns[side] = self._event_ns(side)
            if (released_ns := self._release_times.of(side)) is not None:
                half.released_ns[side] = released_ns
            self._idle_times.note(side, block, side in self.trusted)
        return half

    def refuse_early_answers(self) -> None:
        """Raise if a side answered before its work was over, after the quads of a metric.

        If a baseline sleeps in its calls, only empty blocks show the shortest idle time. So more of them are run first.
        """
        suspects = [side for side in self.sides if self._idle_times.answers_early(side, self.overhead)]
        if not suspects:
            return
        with AttributedTo(self._twin):
            self.overhead = self.overhead.with_least_idle(self.sessions[self._twin])
        for side in suspects:
            if self._idle_times.answers_early(side, self.overhead):
                cause = "went on working after its answer, in time that the judge takes for its own"
                raise SideFault(side, WorkerCheated(cause))

    def _event_ns(self, side: SideName) -> int:
        with AttributedTo(side):
            return self.sessions[side].event_ns()

    def _draw(self, calls: int) -> Contents:
        return self.pool.contents(self.op, self.row, calls, self.eager)

    def _most_calls(self, side: SideName, metric: Metric) -> int:
        session = self.sessions[side]
        if metric == "wall":
            return min(session.slots, session.wall_calls)
        if metric == "stream":
            return min(session.slots, self.stream_calls.get(side) or session.slots)
        return session.slots

    def _calls(self, metric: Metric) -> dict[SideName, int]:
        """Return the number of calls in each side's block.

        The number is secret, and equal for sides with equally many slots. A graph always makes all of its calls.
        """
        secret = self.rng.random()
        calls: dict[SideName, int] = {}
        for side, session in self.sessions.items():
            most = self._most_calls(side, metric)
            is_fixed = most < 4 or (metric == "device" and session.loop_takes_all_slots)
            calls[side] = most if is_fixed else most - int(secret * (most // 4 + 1))
        return calls

    def _block(self, side: SideName, metric: Metric, calls: int, contents: Contents) -> Block:
        """Run and verify one block. The choice and the order of its slots are secret."""
        session = self.sessions[side]
        self._prepare(side)
        self._release_times.note(side, session.release_ns, calls)
        slots = self.rng.sample(range(session.slots), calls)
        with AttributedTo(side):
            if metric == "wall":
                with self._right_wherever(side, contents):
                    return self._one_by_one(session, contents, slots, self._held_to(side))
            contents.place(session, slots)
            session.save_image()
            session.ready()
            with self._right_wherever(side, contents):
                block, left = session.run(slots, with_python=metric == "stream")
            verify(session, block, contents.problem(left, tolerances=self._held_to(side)))
        return block

    @contextlib.contextmanager
    def _right_wherever(self, side: SideName, contents: Contents) -> Iterator[None]:
        """Verify a block whose outputs moved. It does not count, but a wrong block must not escape this way."""
        try:
            yield
        except OutputsMoved as moved:
            moved.side = side
            problem = contents.problem(moved.outputs, moved.first, self._held_to(side))
            verify(self.sessions[side], moved.block, problem)
            raise

    def _held_to(self, side: SideName) -> Tolerances | None:
        """Return the task's tolerances for a baseline; None for a candidate, which is held to the contract."""
        return self.tolerances if side in self.trusted else None

    def _one_by_one(
        self, session: Session, contents: Contents, slots: list[int], tolerances: Tolerances | None
    ) -> Block:
        """Run a block of `wall`: the contents of a call are written after the call before it."""
        blocks = []
        for first, block, left in session.run_single_calls(contents, slots):
            verify(session, block, contents.problem(left, first, tolerances))
            blocks.append(block)
        return Block.joined(blocks)

    def finish(self) -> None:
        """Check, after the last quad, that outputs which workers still hold have not changed."""
        for side, session in self.sessions.items():
            with AttributedTo(side):
                session.end_retention()

    def audit(self, task: Task, metric: Metric, side: SideName) -> None:
        """Run a block that looks like a timed one, with inputs of every distribution, under the full contract.

        Timed blocks hold ordinary inputs. This catches a side that computes carefully only when it is called singly.
        Each distribution occurs once, as far as the block has calls: with random choices the revealing ones were
        sometimes missing, and two zero inputs would be equal.
        """
        session = self.sessions[side]
        self._release_times.disturb(side)
        before = self._moves[side]
        self._audit_every_kind(task, side, session)
        session.begin(metric)
        if self._moves[side] > before:
            self._measure_overhead(metric)  # there may be more to read back now, for every side

    def _audit_every_kind(self, task: Task, side: SideName, session: Session) -> None:
        session.begin("stream")
        order = self.rng.sample(range(session.slots), self._calls("stream")[side])
        kinds = self._kinds(side)
        calls = self.rng.sample(range(len(order)), min(len(order), len(kinds)))
        cases = {
            call: Case(self.row, kind) for call, kind in zip(calls, self.rng.sample(kinds, len(calls)), strict=True)
        }
        self._audit(task, side, session, order, cases)

    def audit_alone(self, task: Task, side: SideName) -> None:
        """Run a block that looks like a timed block of `wall`, with inputs of every distribution."""
        session = self.sessions[side]
        self._release_times.disturb(side)
        calls = self._calls("wall")[side]
        slots = self.rng.sample(range(session.slots), calls)
        kinds = self.rng.sample([*self._kinds(side), *["normal"] * calls], calls)
        odd = AuditContents([Case(self.row, kind) for kind in kinds], self.pool, self.op)

        def look(first: int, block: Block, left: Any) -> None:
            problem = odd.problem_of(task, session, left, first, self._standard(side))
            verify(session, block, f"in a call by itself: {problem}" if problem else None)

        with AttributedTo(side):
            session.prepare()
            try:
                for first, block, left in session.run_single_calls(odd, slots):
                    look(first, block, left)
            except OutputsMoved as moved:  # it is not timed, and a repeat would reveal the audit
                self._note_move(side)
                look(moved.first, moved.block, moved.outputs)

    def long_run(self, task: Task, side: SideName) -> None:
        """Make many calls in a row, check every output, then audit.

        Call this after the last quad, because the side gets a new session.
        """
        old = self.sessions.pop(side)
        old.close()
        # The run has its own id, because the addresses of its outputs say nothing about those of timed blocks.
        row = self.row.model_copy(update={"id": f"{self.row.id}.long-run"})
        slots = slots_of_long_run(row, old.long_run_slots, old.long_run_bytes)
        with AttributedTo(side):
            session = self.open_session(old.worker, self.op, row, "returns", slots)
            self.sessions[side] = session
            # Without timed calls in this round there is nothing to compare with, and all time counts.
            timed_call_s = statistics.median(self._stream_ns.get(side) or [float("inf")]) / 1e9
            for block, problem in LongRun(session, self.pool, self.rng, self.eager, timed_call_s).blocks():
                verify(session, block, problem)
        self._moves.clear()
        self._audit_every_kind(task, side, session)
        with AttributedTo(side):
            session.end_retention()

    def _kinds(self, side: SideName) -> list[str]:
        """Return the input distributions of a side's audits."""
        return [kind for kind in distributions_of(self.op) if not (kind in HARSH and side in self.trusted)]

    def _standard(self, side: SideName) -> Standard:
        return "tolerance" if side in self.trusted else self.op.contract

    def audit_neighbour(self, task: Task, case: Case, side: SideName) -> None:
        """Run calls at another size on a worker that has seen all timed calls."""
        with AttributedTo(side):
            session = self.open_session(self.sessions[side].worker, self.op, case.row, "returns", 2)
        try:
            session.begin("stream")
            self._audit(task, side, session, [1, 0], {0: case, 1: case})
        finally:
            session.close()

    def _audit(self, task: Task, side: SideName, session: Session, order: list[int], cases: dict[int, Case]) -> None:
        """Run a block in which the calls of `cases` get the contents of their case, and all others ordinary contents.

        All contents differ: two equal slots would reveal the audit.
        """
        others = [slot for call, slot in enumerate(order) if call not in cases]
        contents = {call: self.pool.draw(self.op, case.row, case.distribution) for call, case in cases.items()}
        ordinary = self.pool.contents(self.op, session.row, len(others), self.eager) if others else None
        with AttributedTo(side):
            session.prepare()
            if ordinary is not None:
                ordinary.place(session, others)
            for call, content in contents.items():
                session.fill(order[call], content)
            session.save_image()
            session.ready()
            try:
                block, left = session.run(order)
            except OutputsMoved as moved:  # it is not timed, and a repeat would reveal the audit
                block, left = moved.block, moved.outputs
                self._note_move(side)
            problems = [
                problem
                for call, case in cases.items()
                for problem in case_problems(
                    task, case, contents[call], session.outputs_of(left, call), self.pool, self._standard(side)
                )
            ]
            verify(session, block, f"in a run of calls: {problems[0]}" if problems else None)

    def _prepare(self, side: SideName) -> None:
        with AttributedTo(side):
            self.sessions[side].prepare()
        self._refuse_company(side)

    def _refuse_company(self, side: SideName) -> None:
        with AttributedTo(side):
            self.sessions[side].worker.refuse_company()


def verify(session: Session, block: Block, problem: str | None) -> None:
    """Raise if a block is wrong, or if a helper worked on it during the block or while it was read."""
    session.worker.refuse_helpers(block)
    session.worker.refuse_stirring()
    if problem:
        raise WrongOutput(problem)


def warm_up(session: Session, pool: Pool, metric: Metric = "stream", calls: int | None = None) -> None:
    """Run as many calls as a block makes, each on its own slot.

    This touches memory, grows the allocator to a block's outputs and compiles the side. The outputs of `wall` are all
    held until their block is over, so a single call would not show where the others lie.
    """
    order = range(calls or (1 if metric == "wall" else session.slots))
    contents = pool.draw(session.op, session.row)
    for _ in range(MOST_MOVES + 1):
        session.prepare()
        session.fill_all(contents)
        session.ready()
        with contextlib.suppress(OutputsMoved):
            session.run(order, with_python=metric != "device")
            return
    raise WorkerFailed(WANDERING)
