"""The judge: correctness first, then rounds of quads with fresh workers, until every pair is decided on every row."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.checks.correctness_check import CorrectnessCheck
from kernwright.judge.contest.contestant import Contestant
from kernwright.judge.contest.pair import contenders_of, sides_of
from kernwright.judge.contest.worker_group import NotLoaded, WorkerGroup
from kernwright.judge.contest.worker_spec import WorkerSpec
from kernwright.judge.device.device import Device
from kernwright.judge.numerics.secret_rng import SecretRng
from kernwright.judge.process.faults import WorkerCheated, WorkerFault
from kernwright.judge.record.file_snapshot import PACKAGE, FileSnapshot
from kernwright.judge.record.sample import SideName
from kernwright.judge.record.verdict import Verdict
from kernwright.judge.rounds.census import refuse_other_kernels, take_census
from kernwright.judge.rounds.context import JudgementContext
from kernwright.judge.rounds.pair_state import PairState, record_round
from kernwright.judge.rounds.progress import Progress
from kernwright.judge.rounds.row_round import RowRound, UnattributedFault
from kernwright.judge.system.interrupt import Interrupt
from kernwright.tasks.policy import TimingPolicy
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload


@dataclass
class Judgement:
    """One task, some rows, one device; one pair, or several that share their sides."""

    task: Task
    pairs: Sequence[PairState]
    specs: dict[SideName, WorkerSpec]
    contestants: dict[SideName, Contestant]
    rows: Sequence[Workload]
    device: Device
    policy: TimingPolicy
    seed: int
    progress: Progress
    census: bool = False
    rounds: int | None = None  # maximum, if below the policy's

    def __post_init__(self) -> None:
        self.interrupt = Interrupt()
        self._seconds: dict[str, float] = {}
        self._snapshot: FileSnapshot | None = None
        self._round = 0
        self._turns: list[Workload] = []  # rows completed in this round
        self.context = JudgementContext(
            task=self.task,
            contestants=self.contestants,
            device=self.device,
            policy=self.policy,
            seed=self.seed,
            rng=SecretRng(self.seed),
            interrupt=self.interrupt,
        )

    @property
    def _standing(self) -> list[PairState]:
        """Return the pairs that were not abandoned."""
        return [pair for pair in self.pairs if pair.problem is None]

    def run(self) -> list[Verdict | None]:
        """Run to the end or until Ctrl-C. An interrupted verdict covers the finished rows and is marked.

        A pair that cannot be judged gets None and does not affect the others; if none can be judged, its problem is
        raised.
        """
        before = self.device.state()
        for pair in self.pairs:
            pair.provenance.started, pair.provenance.state_before = _now(), before
        try:
            interrupted = self._until_interrupted()
        except Exception as cause:
            self._abandon(cause)
            raise
        if trouble := self.device.health():
            self._abandon(problem := EnvironmentProblem(trouble, "nothing of this run counts; start it again"))
            raise problem
        after = self.device.state()
        for pair in self._standing:
            pair.provenance.finished, pair.provenance.state_after = _now(), after
            pair.provenance.seconds = {what: round(taken, 3) for what, taken in self._seconds.items()}
        return [pair.conclude(interrupted) if pair.problem is None else None for pair in self.pairs]

    def _until_interrupted(self) -> bool:
        """Run the rounds. Return True if they were interrupted. A second Ctrl-C leaves no verdict.

        Rows finished by then pass the same final checks as at the end.
        """
        try:
            with self.interrupt.listening():
                self._rounds()
        except KeyboardInterrupt:
            if not self._standing:  # no verdict is left to mark as interrupted
                raise
            self._refuse_changed_files()
            for pair in self._standing:
                pair.end_early(self._turns if self._round else (), self._round, self.rounds)
            record_round([pair for pair in self._standing if pair.samples_of(self._round)], self._round)
            return True
        return False

    @contextlib.contextmanager
    def _taking(self, what: str) -> Iterator[None]:
        """Add the time of a part of the judgement to its total."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._note_seconds(what, time.monotonic() - started)

    @contextlib.contextmanager
    def _apart(self, what: str) -> Iterator[None]:
        """Count the time of a part of the correctness phase separately."""
        started = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self._note_seconds(what, seconds)
            self._note_seconds("correctness", -seconds)

    def _note_seconds(self, what: str, seconds: float) -> None:
        self._seconds[what] = self._seconds.get(what, 0.0) + seconds

    def _abandon(self, cause: Exception) -> None:
        for pair in self.pairs:
            pair.abandon(cause)

    def _rounds(self) -> None:
        loop = [self.device.block_loop] if self.device.block_loop else []
        self._snapshot = FileSnapshot.over(PACKAGE, self.task.folder, *self._trusted_folders(), *loop)
        for number in range(self.rounds or self.policy.max_rounds):
            self._round, self._turns = number, []
            pairs = [pair for pair in self.pairs if pair.pending]
            if not pairs:
                break
            with self._taking("workers"):
                group = self._assemble(pairs)
            try:
                if number == 0:
                    with self._taking("correctness"):
                        self._check_all(group, pairs)
                with self._taking("timing"):
                    self._time_all(group, pairs, number)
                if number == 0 and self.census:
                    with self._taking("census"):
                        self._take_census(group, pairs)
            finally:
                with self._taking("end of workers"):
                    group.dismiss()
            self._refuse_changed_files()
            if all(state.fault != "tampered" for pair in self.pairs for state in pair.states):
                group.keep_compiled({pair.pair.again for pair in pairs})
            standing = [pair for pair in pairs if pair.problem is None]
            record_round(standing, number)
            for pair in standing:
                pair.look(number, self.rounds)
        if self.rounds is not None:
            for pair in self._standing:
                pair.end_looks(self.rounds)
        if not self._standing and (problem := self.pairs[0].problem):
            raise problem

    def _trusted_folders(self) -> list[Path]:
        """Return the folders that baselines read, which a candidate might try to change."""
        trusted = self.context.trusted
        return list(dict.fromkeys(path for name, spec in self.specs.items() if name in trusted for path in spec.reads))

    def _refuse_changed_files(self) -> None:
        """Condemn a contender that changed files of the judge, the task or a baseline."""
        if self._snapshot is None or not (changed := self._snapshot.changed()):
            return
        what = f"files changed while it was judged: {', '.join(path.name for path in changed[:3])}"
        if len(contenders_of(pair.pair for pair in self._standing)) > 1:
            raise UnattributedFault(what, "judge the contenders one by one")
        for pair in self._standing:
            for state in pair.states:
                if state.fault != "tampered":
                    state.condemn(WorkerCheated(what))

    def _assemble(self, pairs: Sequence[PairState]) -> WorkerGroup:
        """Start the workers of the sides that are still needed."""
        group = WorkerGroup(self.specs, self.policy.threads, self.device, sides_of(pair.pair for pair in pairs))
        for pair in pairs:
            pair.note_workers(group)
        return group

    # Correctness

    def _check_all(self, group: WorkerGroup, pairs: Sequence[PairState]) -> None:
        contenders = contenders_of(pair.pair for pair in pairs)
        self.progress.phase("correctness", len(contenders) * len(self.rows))
        self._load_baselines(group, pairs)
        for contender in contenders:
            self._check_contender(group, contender, [pair for pair in pairs if pair.pair.candidate == contender])
        for pair in pairs:
            if pair.problem is None:
                pair.record_correctness()

    def _load_baselines(self, group: WorkerGroup, pairs: Sequence[PairState]) -> None:
        for pair in pairs:
            timed = [row.op for row in self.rows if pair.waits_for(row) and pair.on(row).untimed is None]
            try:
                for op in timed[:1]:
                    group.worker(pair.pair.baseline, op)
            except WorkerFault as failed:
                pair.abandon(
                    EnvironmentProblem(f"baseline {pair.baseline.name} cannot be loaded: {failed}", "choose another")
                )

    def _check_contender(self, group: WorkerGroup, contender: SideName, pairs: Sequence[PairState]) -> None:
        """Check a contender once for all of its pairs."""
        check = CorrectnessCheck(
            task=self.context.checked(contender),
            candidate=self.contestants[contender],
            style=self.specs[contender].style,
            device=self.device,
            provenance=pairs[0].provenance,
        )
        for row in self.rows:
            waiting = [pair.on(row) for pair in pairs if pair.waits_for(row)]
            if not waiting:
                continue
            try:
                with self._apart("build"):
                    worker = group.worker(contender, row.op)
                compiling = check.examine(worker, waiting[0], self.context.repeatable_pool(row))
                self._note_seconds("first calls", compiling)
                self._note_seconds("correctness", -compiling)  # first calls are counted separately
                waiting[0].decided = waiting[0].untimed is not None
                for state in waiting[1:]:
                    state.take_findings(waiting[0])
            except WorkerFault as cause:
                for state in waiting:
                    state.condemn(cause)
                if isinstance(cause, NotLoaded):  # it applies to every row
                    for state in (state for pair in pairs for state in pair.states if state.pending):
                        state.condemn(cause)
                    break
                group.respawn(contender)
            self.progress.step(row.id)
        for pair in pairs[1:]:
            pair.provenance.contender = pairs[0].provenance.contender

    # Time

    def _time_all(self, group: WorkerGroup, pairs: Sequence[PairState], number: int) -> None:
        waiting = [row for row in self.rows if any(pair.waits_for(row) for pair in pairs)]
        if not waiting:  # every row has failed or needs no times
            return
        suspects = contenders_of(pair.pair for pair in pairs)
        self.progress.phase(f"timing, round {number + 1}", len(waiting))
        for row in waiting:
            if left := [pair for pair in pairs if pair.waits_for(row)]:
                self._time(group, row, left, suspects, number)
                self.interrupt.heed()
                self._turns.append(row)
            self.progress.step(row.id)

    def _time(
        self, group: WorkerGroup, row: Workload, pairs: Sequence[PairState], suspects: Sequence[SideName], number: int
    ) -> None:
        try:
            RowRound(context=self.context, group=group, row=row, pairs=pairs, suspects=suspects, number=number).run()
        except UnattributedFault:
            for contender in contenders_of(pair.pair for pair in pairs):
                own = [pair for pair in pairs if pair.pair.candidate == contender and pair.waits_for(row)]
                if own:
                    RowRound(
                        context=self.context, group=group, row=row, pairs=own, suspects=[contender], number=number
                    ).run()
                    group.respawn(contender)  # the next contender starts without traces of this one

    def _take_census(self, group: WorkerGroup, pairs: Sequence[PairState]) -> None:
        take_census(group, self.task, self.rows, pairs, self.context.pool, self.context.trusted)
        for pair in pairs if self.device.has_kernels else ():
            refuse_other_kernels(pair)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
