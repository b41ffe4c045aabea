"""RowRound: one row in one round, timed for every pair that is not yet decided on it.

A side that fails ends the row for the pairs that need it; the others go on. If any of several contenders may have
caused a fault, the round ends for the row, and each contender is then timed separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.contest.faults import AttributedTo, SideFault
from kernwright.judge.contest.pair import CALLED, contenders_of, sides_of
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.device.problems import DeviceFull
from kernwright.judge.numerics.cases import secret_case
from kernwright.judge.numerics.contracts import ErrorFigures
from kernwright.judge.numerics.correctness import expected_outputs
from kernwright.judge.process.faults import StrayProcess, WorkerCheated, WorkerFailed
from kernwright.judge.record.sample import SideName
from kernwright.judge.rounds.context import JudgementContext
from kernwright.judge.rounds.pair_state import PairState
from kernwright.judge.rounds.row_state import RowState
from kernwright.judge.rounds.sizing import BlockSizes, block_sizes, first_call
from kernwright.judge.rounds.timing import RowTiming, warm_up
from kernwright.judge.session.session import DeviceBusy, DeviceSlowed, Session
from kernwright.tasks.policy import METRICS, Metric
from kernwright.tasks.workload import Workload

HOARD_BYTES = 2**32  # memory freed by a contender's end that proves hoarding: more than a context and its modules
MOST_SLOWED = 8  # restarts of rows per judgement because the device was slow
SLOWDOWNS_TO_CONVICT = 2  # slowdowns needed before a contender is blamed
AT_ONCE_S = 1.0  # time for the driver to wipe the memory that an ended worker frees
MORE_WALL = 3  # factor on the quads of `wall` in a round that is run only for it
Result = TypeVar("Result")


class UnattributedFault(EnvironmentProblem):
    """A fault of one of several contenders; which one is unknown."""


@dataclass
class RowRound:
    """Some pairs on one row, with one worker group.

    `suspects` are the contenders of this group that have run so far, on any row. A contender keeps its worker after it
    was decided or found wrong here.
    """

    context: JudgementContext
    group: WorkerGroup
    row: Workload
    pairs: Sequence[PairState]
    suspects: Sequence[SideName]
    number: int  # number of the round
    sessions: dict[SideName, Session] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.op = self.context.task.op_of(self.row)
        self.pool = self.context.pool(self.row)

    @property
    def _left(self) -> list[PairState]:
        """Return the pairs that are not decided on this row."""
        return [pair for pair in self.pairs if pair.waits_for(self.row)]

    @property
    def _states(self) -> list[RowState]:
        return [pair.on(self.row) for pair in self._left]

    @property
    def _contenders(self) -> list[SideName]:
        return contenders_of(pair.pair for pair in self._left)

    def run(self) -> None:
        """Time the row for every pending pair. Raise `UnattributedFault` if the contenders must be timed one by one."""
        spent = [(state, state.spent_s) for state in self._states]
        while not self._is_done():
            self._forget_round()
            for state, spent_s in spent:
                state.spent_s = spent_s

    def _is_done(self) -> bool:
        """Time the row once. Return False if it must be timed again."""
        try:
            self._time()
        except StrayProcess as stray:
            self.group.respawn(*self.suspects)
            self._blame(stray)
        except DeviceFull as full:
            before = self.context.device.free_bytes()
            self.group.respawn(*self.suspects)
            if self.context.device.free_bytes() < before + HOARD_BYTES:
                raise
            self._blame(WorkerFailed("left no memory on the device for the judge and the other sides"), full)
        except DeviceSlowed as slowed:
            return self._is_slowness_explained(slowed)
        except DeviceBusy as busy:
            self.group.respawn(*self.suspects)
            if self.context.device.is_busy():
                raise EnvironmentProblem(
                    f"{self.context.device.name} is in use by others: {busy}", "wait for them"
                ) from None
            self._blame(WorkerCheated("kept the device busy while it stood still, in other sides' time"))
        finally:
            for session in self.sessions.values():
                session.close()
            self.sessions = {}
        return True

    def _is_slowness_explained(self, slowed: DeviceSlowed) -> bool:
        """Return whether a contender was found to have slowed the device.

        All workers were stopped for seconds, and the device ran only an occasional copy, but it was slow. If the device
        is fast as soon as the contenders' workers have ended, they slowed it, or an unrelated process that ended at the
        same time did. So one such case is no proof. Otherwise the device is slow without them.
        """
        slowness, device = self.context.slowness, self.context.device
        slowness.lasted += 1
        for pair in self.pairs:
            pair.provenance.slowed += 1
        self.group.end(*self.suspects)
        is_slow = device.is_slow(AT_ONCE_S)
        self.group.spawn(*self.suspects)
        if slowness.lasted > MOST_SLOWED:
            raise EnvironmentProblem(
                f"{device.name} does not keep its pace: {slowed}", "let it cool down, and end what else runs on it"
            ) from None
        if is_slow:
            device.accept_memory_speed()
            for state in self._states:
                state.copy_s = None
        elif not self.context.trusted.issuperset(self.suspects):
            slowness.gone_with_workers += 1
            if slowness.gone_with_workers >= SLOWDOWNS_TO_CONVICT:
                self._blame(WorkerCheated("kept the device's memory busy while it stood still, in other sides' time"))
                return True
        return False

    def _forget_round(self) -> None:
        """Drop the samples of this round."""
        for state in self._states:
            state.samples = [sample for sample in state.samples if sample.round != self.number]

    def _blame(self, cause: WorkerFailed | WorkerCheated, seen: Exception | None = None) -> None:
        """Condemn the contender for a fault that only a contender can cause. Its worker has been replaced."""
        if len(self.suspects) > 1:
            self._forget_round()
            raise UnattributedFault(f"row {self.row.id}: one of several {cause}", "judge them one by one") from seen
        for state in self._states:
            state.condemn(cause)

    def _without_fallen(self, work: Callable[[], Result]) -> Result | None:
        """Do the work for the remaining pairs; repeat it whenever a side fails."""
        while self._left:
            try:
                return work()
            except SideFault as fault:
                self._drop(fault)
        return None

    def _drop(self, fault: SideFault) -> None:
        """End the row for the pairs that need a side which failed or broke a rule."""
        if isinstance(fault.cause, StrayProcess):  # it may belong to another side than the one that was running
            raise fault.cause
        concerned = [pair for pair in self._left if fault.side in pair.pair.roles]
        if fault.side in self._contenders:
            for pair in concerned:
                pair.on(self.row).condemn(fault.cause)
            self.group.respawn(fault.side)
        else:
            self._drop_baseline(concerned, fault)
        for side in self.sessions.keys() - set(sides_of(pair.pair for pair in self._left)):
            self.sessions.pop(side).close()

    def _drop_baseline(self, concerned: Sequence[PairState], fault: SideFault) -> None:
        self.group.discard_compiled(concerned[0].pair)
        contestant = concerned[0].baseline
        if contestant.published is not None:  # a published package may fail on one row and run on the next
            for pair in concerned:
                pair.on(self.row).fail(f"the baseline failed: {fault.cause}")
            self.group.respawn(*concerned[0].pair.baselines)
            return
        for pair in concerned:
            pair.abandon(
                EnvironmentProblem(
                    f"baseline {contestant.name} failed on row {self.row.id}: {fault.cause}",
                    "judge against another baseline, or fix this one",
                )
            )

    # Before the first quad

    def _time(self) -> None:
        self._without_fallen(self._rehearse)
        self._without_fallen(self._settle_sizes)
        self._measure_copy()
        self._without_fallen(self._open)
        if not self._left:
            return
        timing = self._timing()
        for metric in METRICS:
            started = time.monotonic()  # builds and compilations are over
            asking = [pair for pair in self._left if self._asks_for(metric, pair.on(self.row))]
            if metric == "device":
                asking = self._with_loops(timing, asking)
            if not asking:
                continue
            sides = sides_of(pair.pair for pair in asking)
            self._measure(timing, metric, asking)
            for pair in asking:  # the pair's share of the time
                pair.on(self.row).spent_s += (time.monotonic() - started) * len(pair.pair.roles) / len(sides)
        self._without_fallen(timing.finish)
        is_last_for_all = self.number == self.context.policy.first_look - 1  # the last round that every row has
        if is_last_for_all and not any(pair.quick for pair in self.pairs):  # an edit loop must not wait for it
            for contender in self._contenders:
                self._run_long(timing, contender)
        for contender in self._contenders:
            self._audit_neighbour(timing, contender)

    @property
    def _is_settled(self) -> bool:
        return all(state.sizes for state in self._states)

    def _rehearse(self) -> None:
        sides = sides_of(pair.pair for pair in self._left)
        self.group.rehearse(self.op, self.row, self.pool, self._is_settled, sides)

    def _settle_sizes(self) -> None:
        if self._is_settled:
            return
        pairs = [pair.pair for pair in self._left]
        context = self.context
        sizes = block_sizes(
            self.group, self.op, self.row, self.pool, context.policy, pairs, self._eager_errors(), context.trusted,
            context.published,
        )  # fmt: skip
        for pair in {pair.baseline: pair for pair in pairs}.values():
            self.group.hand_on_compiled(pair)
        for own, state in zip(pairs, self._states, strict=True):
            state.sizes = {role: sizes[side] for side, role in own.roles.items()}

    def _measure_copy(self) -> None:
        """Time a copy once per row, and again if the device's speed has changed."""
        without = [state for state in self._states if state.copy_s is None]
        if without:
            copy_s = self.context.device.copy_seconds(self.row.bytes_min, self.context.policy.threads)
            for state in without:
                state.copy_s = copy_s

    @property
    def _sizes(self) -> dict[SideName, BlockSizes]:
        """Return the sizes by side. Pairs that were sized separately use the larger size of a side that they share."""
        sizes: dict[SideName, BlockSizes] = {}
        for pair, state in zip(self._left, self._states, strict=True):
            for side, role in pair.pair.roles.items():
                sizes[side] = state.sizes[role].at_least(sizes.get(side))
        return sizes

    def _open(self) -> None:
        """Open the sessions of all sides and warm them up."""
        for side, size in self._sizes.items():
            if side not in self.sessions:
                self.sessions[side] = self.group.open(side, self.op, self.row, size.slots)
                self.sessions[side].compares_retained = side not in self.context.trusted
                self._warm(side, size.stream_calls)

    def _warm(self, side: SideName, calls: int) -> None:
        session = self.sessions[side]
        with AttributedTo(side):
            if side in self.context.published:
                first_call(session, self.pool)
            session.begin("stream")
            warm_up(session, self.pool, "stream", calls)

    def _timing(self) -> RowTiming:
        task, device = self.context.task, self.context.device
        return RowTiming(
            op=self.op,
            row=self.row,
            sessions=self.sessions,
            pool=self.pool,
            rng=self.context.rng,
            eager=self._eager_errors(),
            tolerances={
                name: task.tolerance_for(spec.dtype) for name, spec in self.row.results(self.op.inplace).items()
            },
            trusted=self.context.trusted,
            twins=[pair.pair.again for pair in self._left],
            open_session=device.open_session,
            shares_contents=device.shares_contents,
            stream_calls={side: size.stream_calls for side, size in self._sizes.items()},
        )

    def _eager_errors(self) -> dict[str, ErrorFigures]:
        """Return the eager chain's errors from the correctness check, or from one draw if there was none."""
        if known := next((state.report.errors for state in self._states if state.report.errors), None):
            return known
        expected = expected_outputs(self.op, self.row, self.pool.draw(self.op, self.row))
        return {name: ErrorFigures(e.eager_max, e.eager_rms, e.eager_max, e.eager_rms) for name, e in expected.items()}

    # Quads

    def _asks_for(self, metric: Metric, state: RowState) -> bool:
        """Return whether a metric is measured in this round.

        Rounds after the first look measure only the deciding metric or, if that is decided, `wall`.
        """
        if metric in state.unavailable:
            return False
        if self.number < self.context.policy.first_look:
            return True
        return metric == ("wall" if state.awaits_wall else self.context.policy.decides)

    def _with_loops(self, timing: RowTiming, asking: Sequence[PairState]) -> list[PairState]:
        """Return the pairs whose sides all support `device`. Contenders are asked first."""
        able = list(asking)
        for side in reversed(sides_of(pair.pair for pair in asking)):
            concerned = [pair for pair in able if side in pair.pair.roles]
            try:
                reason = timing.open_loop(side) if concerned else None
            except SideFault as fault:
                self._drop(fault)
                reason = None
            for pair in concerned if reason else ():
                pair.on(self.row).unavailable["device"] = f"{CALLED[pair.pair.roles[side]]}: {reason}"
            able = [pair for pair in able if pair in self._left and "device" not in pair.on(self.row).unavailable]
        return able

    def _measure(self, timing: RowTiming, metric: Metric, asking: Collection[PairState]) -> None:
        """Run one round's quads of a metric for the pairs that ask for it."""
        policy, rng = self.context.policy, self.context.rng
        waits = any(pair.on(self.row).awaits_wall for pair in asking)
        quads = policy.quads_of(metric) * (MORE_WALL if waits else 1)
        contenders = contenders_of(pair.pair for pair in asking)
        is_audited = metric in ("stream", "wall")
        audits = {side: rng.randrange(quads) for side in contenders} if is_audited else {}
        taken = 0

        def measure() -> None:
            nonlocal taken
            present = [pair for pair in self._left if pair in asking]
            if not present:
                return
            timing.begin(metric, sides_of(pair.pair for pair in present))
            while taken < quads:
                for side in [side for side, place in audits.items() if place == taken]:
                    del audits[side]
                    if side in timing.sides and metric == "stream":
                        timing.audit(self.context.task, metric, side)
                    if side in timing.sides and metric == "wall":
                        timing.audit_alone(self.context.task, side)
                self.context.interrupt.heed()
                quad = timing.quad(metric, self.number)
                for pair in present:
                    state = pair.on(self.row)
                    state.samples.append(quad.of(pair.pair.roles, state.longer if metric == policy.decides else 1.0))
                taken += 1
            timing.refuse_early_answers()

        self._without_fallen(measure)

    def _run_long(self, timing: RowTiming, contender: SideName) -> None:
        """Let one worker of an untrusted contender make far more calls than timing needs."""
        if contender in self.context.trusted:
            return
        concerned = [pair.on(self.row) for pair in self._left if pair.pair.candidate == contender]
        worker = self.sessions[contender].worker
        try:
            timing.long_run(self.context.task, contender)
        except SideFault as fault:
            self._drop(fault)
        for state in concerned:
            state.process_calls = worker.calls

    def _audit_neighbour(self, timing: RowTiming, contender: SideName) -> None:
        """Audit a contender at a secret neighbouring size. The foreseeable sizes were checked before timing."""
        case = secret_case(self.row, self.context.checked(contender).file.neighbours, self.context.rng)
        if case is None:
            return
        try:
            timing.audit_neighbour(self.context.task, case, contender)
        except SideFault as fault:
            self._drop(fault)
