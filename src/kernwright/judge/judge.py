"""The judge: correctness first, then rounds of quads with fresh workers, until every row is decided."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from kernwright.campaign.ledger import RunWriter
from kernwright.errors import EnvironmentProblem
from kernwright.judge.cases import cases_for
from kernwright.judge.census import refuse_other_kernels, take_census
from kernwright.judge.chance import Chance
from kernwright.judge.contents import Pool
from kernwright.judge.contract import ErrorFigures
from kernwright.judge.correctness import expected_outputs
from kernwright.judge.decision import overall
from kernwright.judge.device import Device, DeviceFull
from kernwright.judge.examination import Examination
from kernwright.judge.headline import headline_of, reasons_of
from kernwright.judge.interrupt import Interrupt
from kernwright.judge.party import Party
from kernwright.judge.provenance import Provenance
from kernwright.judge.row_state import RowState
from kernwright.judge.seal import PACKAGE, Seal
from kernwright.judge.session import DeviceBusy, Session, WrongBehaviour
from kernwright.judge.sides import Crew, NotLoaded, Side
from kernwright.judge.sizing import block_sizes, first_call
from kernwright.judge.timing import BASELINES, RowTiming, SideFault, SideName, warm_up
from kernwright.judge.verdict import Verdict
from kernwright.judge.worker_faults import StrayProcess, WorkerCheated, WorkerFailed
from kernwright.tasks.policy import METRICS, Metric, TimingPolicy
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

HOARD_BYTES = 2**30
MORE_WALL = 3  # times as many quads of `wall`, in a round that is there for it alone


class Progress(Protocol):
    """Where the judge says how far it is."""

    def phase(self, what: str, steps: int) -> None: ...

    def step(self, note: str) -> None: ...


@dataclass
class Judgement:
    """One task, one baseline, one candidate, some rows, one device."""

    task: Task
    baseline: Party
    candidate: Party
    sides: dict[SideName, Side]
    rows: Sequence[Workload]
    device: Device
    policy: TimingPolicy
    provenance: Provenance
    writer: RunWriter
    progress: Progress
    quick: bool = False
    census: bool = False
    seeded: bool = False
    states: list[RowState] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = Chance(self.provenance.seed)
        self.states = [RowState(row) for row in self.rows]
        self.interrupt = Interrupt()
        self.checked = self.task.at_frozen_sizes() if self.candidate.at_frozen_sizes else self.task
        self.examination = Examination(
            self.checked, self.candidate, self.sides["candidate"].style, self.device, self.provenance, self.quick
        )
        self.trusted: frozenset[SideName] = BASELINES | ({"candidate"} if self.candidate.trusted else frozenset())
        for state in self.states:
            for side, party in (("baseline", self.baseline), ("candidate", self.candidate)):
                if side == "baseline" and state.row.set == "grid":
                    continue  # it is never called there
                if state.pending and (why := party.declines(self.task, state.row, self.device.capability)):
                    state.fail(f"the {side} declines: {why}")

    def _party(self, side: SideName) -> Party:
        return self.candidate if side == "candidate" else self.baseline

    def _pool(self, row: Workload) -> Pool:
        """Contents for one row in one round, from a seed of their own."""
        return self.device.pool(row, self.chance.content_seed())

    def run(self) -> Verdict:
        """To the end, or to Ctrl-C: then what was measured is recorded and marked as interrupted."""
        interrupted = False
        self.provenance.started = _now()
        self.provenance.state_before = self.device.state()
        try:
            with self.interrupt.listening():
                self._rounds()
        except KeyboardInterrupt:
            interrupted = True
        except Exception as cause:
            self.writer.append("abandoned", {"cause": f"{type(cause).__name__}: {cause}"})
            raise
        if trouble := self.device.health():
            self.writer.append("abandoned", {"cause": trouble})
            raise EnvironmentProblem(trouble, "nothing of this run counts; start it again")
        self.provenance.state_after = self.device.state()
        self.provenance.finished = _now()
        verdict = self._verdict(interrupted)
        self.writer.append("verdict", verdict.model_dump(mode="json"))
        return verdict

    def _rounds(self) -> None:
        seal = Seal.over(PACKAGE, self.task.folder, *self._trusted_folders())
        for number in range(self.policy.max_rounds):
            pending = [state for state in self.states if state.pending]
            if not pending:
                return
            crew = self._assemble()
            try:
                if number == 0:
                    self._check_all(crew)
                    pending = [state for state in self.states if state.pending]
                self.progress.phase(f"timing, round {number + 1}", len(pending))
                for state in pending:
                    self._time(crew, state, number)
                    self.progress.step(state.row.id)
                if number == 0 and self.census:
                    self._take_census(crew, pending)
            finally:
                crew.dismiss()
            self._refuse_changed_files(seal)
            if all(state.fault != "tampered" for state in self.states):
                crew.keep_compiled()
            self._record_round(number)
            if number + 1 >= self.policy.first_look:
                for state in pending:
                    if state.pending:
                        state.look(self.policy)

    def _trusted_folders(self) -> list[Path]:
        """What baselines read: a candidate could wish to change it."""
        return list(
            dict.fromkeys(path for side in self.sides if side in self.trusted for path in self.sides[side].reads)
        )

    def _refuse_changed_files(self, seal: Seal) -> None:
        """Workers that start later would run something else than what was asked for, and what the digests name."""
        if changed := seal.broken():
            cause = WorkerCheated(f"files changed while it was judged: {', '.join(path.name for path in changed[:3])}")
            for state in self.states:
                if state.fault != "tampered":
                    state.condemn(cause)

    def _assemble(self) -> Crew:
        try:
            crew = Crew(self.sides, self.policy.threads, self.device)
        except (WorkerFailed, WorkerCheated) as failed:
            raise EnvironmentProblem(
                f"a worker cannot start: {failed}", "see that this Python can import torch"
            ) from None
        self.provenance.isolation |= _walls_of(crew)
        self.provenance.compiled = crew.about_compiled()
        return crew

    # Correctness

    def _check_all(self, crew: Crew) -> None:
        self.progress.phase("correctness", len(self.states))
        self._load_baseline(crew)
        for state in self.states:
            if not state.pending:
                continue
            try:
                self._check(crew, state)
            except (WorkerFailed, WorkerCheated, WrongBehaviour) as cause:
                state.condemn(cause)
                if isinstance(cause, NotLoaded):  # the same for every row, so it is said of all at once
                    for other in self.states:
                        if other.pending:
                            other.condemn(cause)
                    break
                self._respawn(crew)
            self.progress.step(state.row.id)
        self.writer.append(
            "correctness",
            {
                state.row.id: {
                    "cases": state.report.cases,
                    "problems": state.reasons,
                    "errors": {name: f.as_record() for name, f in state.report.errors.items()},
                }
                for state in self.states
            },
        )

    def _load_baseline(self, crew: Crew) -> None:
        timed = [state.row.op for state in self.states if state.pending and state.row.set != "grid"]
        try:
            for op in timed[:1]:
                crew.worker("baseline", op)
        except (WorkerFailed, WorkerCheated) as failed:
            raise EnvironmentProblem(
                f"baseline {self.baseline.name} cannot be loaded: {failed}", "choose another"
            ) from None

    def _check(self, crew: Crew, state: RowState) -> None:
        worker = crew.worker("candidate", state.row.op)
        self.examination.examine(worker, state, self._pool(state.row))
        state.decided = state.row.set == "grid"  # correctness was all that was asked of it

    # Time

    def _time(self, crew: Crew, state: RowState, number: int) -> None:
        sessions: dict[SideName, Session] = {}
        try:
            self._time_row(crew, state, number, sessions)
        except SideFault as fault:
            if fault.side != "candidate" and not isinstance(fault.cause, StrayProcess):
                crew.discard_compiled()
                if self.baseline.published is not None:  # others' code, which may fail on one row and run on the next
                    state.fail(f"the baseline fell over: {fault.cause}")
                    self._respawn(crew, "baseline", "again")
                    return
                raise EnvironmentProblem(
                    f"baseline {self.baseline.name} fell over on row {state.row.id}: {fault.cause}",
                    "judge against another baseline, or mend this one",
                ) from None
            state.condemn(fault.cause)
            self._respawn(crew)
        except DeviceFull as full:
            self._blame_for_memory(crew, state, full)
        except DeviceBusy as busy:
            self._respawn(crew)
            if self.device.is_busy():
                raise EnvironmentProblem(f"{self.device.name} is in use by others: {busy}", "wait for them") from None
            state.condemn(WorkerCheated("kept the device busy while it stood still, in other sides' time"))
        finally:
            for session in sessions.values():
                session.close()

    def _blame_for_memory(self, crew: Crew, state: RowState, full: DeviceFull) -> None:
        """To be called where the judge found no memory: a candidate that holds it all has failed, not the machine."""
        before = self.device.free_bytes()
        self._respawn(crew)
        if self.device.free_bytes() < before + HOARD_BYTES:
            raise full
        state.condemn(WorkerFailed("left no memory on the device for the judge and the other sides"))

    def _time_row(self, crew: Crew, state: RowState, number: int, sessions: dict[SideName, Session]) -> None:
        row, op = state.row, self.task.op_of(state.row)
        pool = self._pool(row)
        crew.rehearse(op, row, pool, settled=state.slots is not None)
        if state.slots is None:
            published = {side for side in self.sides if self._party(side).published is not None}
            sizes = block_sizes(crew, op, row, pool, self.policy, published)
            state.slots, state.stream_calls = sizes.slots, sizes.stream_calls
            crew.hand_on_compiled()
            state.copy_s = self.device.copy_seconds(row.bytes_min, self.policy.threads)
        for side in self.sides:
            sessions[side] = crew.open(side, op, row, state.slots)
            self._warm(side, sessions[side], pool, state.stream_calls)
        eager = state.report.errors or self._eager_errors(row, pool)
        timing = RowTiming(
            op,
            row,
            sessions,
            pool,
            self.chance,
            eager,
            {name: self.task.tolerance_for(spec.dtype) for name, spec in row.results(op.inplace).items()},
            self.trusted,
            self.device.open_session,
            self.device.shares_contents,
            state.stream_calls,
        )
        started = time.monotonic()  # builds and compilations are behind us
        for metric in METRICS:
            if metric in state.unavailable or not self._is_asked_for(metric, state, number):
                continue
            if metric == "device" and (reason := timing.open_loops()):
                state.unavailable["device"] = reason
                continue
            timing.begin(metric)
            quads = self.policy.quads_of(metric) * (MORE_WALL if state.awaits_wall else 1)
            audited = self.chance.randrange(quads) if metric == self.policy.decides else None
            for quad in range(quads):
                if quad == audited:
                    timing.audit(self.task, metric)
                self.interrupt.heed()
                state.samples.append(timing.quad(metric, number))
        timing.finish()
        state.spent_s += time.monotonic() - started
        self._audit_neighbour(timing, state.row)

    def _is_asked_for(self, metric: Metric, state: RowState, number: int) -> bool:
        """The rounds after the first look are there to decide, or to hear what `wall` has to say of it."""
        if number < self.policy.first_look:
            return True
        return metric == ("wall" if state.awaits_wall else self.policy.decides)

    def _audit_neighbour(self, timing: RowTiming, row: Workload) -> None:
        cases = [case for case in cases_for(timing.op, row, self.checked.file.neighbours) if case.row is not row]
        if cases:
            timing.audit_neighbour(self.task, self.chance.choice(cases))

    def _eager_errors(self, row: Workload, pool: Pool) -> dict[str, ErrorFigures]:
        expected = expected_outputs(self.task.op_of(row), row, pool.draw(self.task.op_of(row), row))
        return {name: ErrorFigures(e.eager_max, e.eager_rms, e.eager_max, e.eager_rms) for name, e in expected.items()}

    def _warm(self, side: SideName, session: Session, pool: Pool, calls: int) -> None:
        try:
            if self._party(side).published is not None:
                first_call(session, pool)
            session.begin("stream")
            warm_up(session, pool, "stream", calls)
        except (WorkerFailed, WorkerCheated, WrongBehaviour) as cause:
            raise SideFault(side, cause) from cause

    def _respawn(self, crew: Crew, *sides: SideName) -> None:
        try:
            for side in sides or ("candidate",):
                crew.respawn(side)
        except (WorkerFailed, WorkerCheated) as failed:
            raise EnvironmentProblem(
                f"a worker cannot start: {failed}", "see that this Python can import torch"
            ) from None

    def _take_census(self, crew: Crew, states: Sequence[RowState]) -> None:
        if self.device.has_kernels:
            take_census(crew, self.task, states, self._pool)
            refuse_other_kernels(states, self.baseline, self.candidate)

    # Records

    def _record_round(self, number: int) -> None:
        """What this round measured, safe on disk before the next begins."""
        blob = self.writer.blob(json.dumps(samples_of(self.states, number)).encode())
        self.writer.append("round", {"round": number, "samples": f"blob:{blob}"})

    def _verdict(self, interrupted: bool) -> Verdict:
        samples = samples_of([state for state in self.states if state.samples])
        blob = f"blob:{self.writer.blob(json.dumps(samples).encode())}" if samples else None
        rows = tuple(
            state.verdict(self.policy, self.device, self.quick, blob if state.samples else None)
            for state in self.states
        )
        headline, outcome = headline_of(self.states, rows, self.policy, self.quick)
        verdict = overall([row.verdict for row in rows], outcome)
        return Verdict(
            task=self.task.name,
            task_digest=self.task.digest,
            baseline=self.baseline.name,
            baseline_digest=self.baseline.digest,
            candidate=self.candidate.name,
            candidate_digest=self.candidate.digest,
            style="returns",
            verdict=verdict,
            reasons=tuple(reasons_of(rows, verdict, interrupted)),
            headline=headline,
            rows=rows,
            quick=self.quick,
            interrupted=interrupted,
            evidence=not (self.quick or self.seeded or interrupted),
            provenance=self.provenance.model_dump(mode="json"),
        )


def samples_of(states: Sequence[RowState], number: int | None = None) -> dict[str, list[dict[str, object]]]:
    """By row: of one round, or of all."""
    return {
        state.row.id: [asdict(sample) for sample in state.samples if number in (None, sample.round)] for state in states
    }


def _walls_of(crew: Crew) -> dict[str, object]:
    """The candidate's walls, and the baseline's where it lacks one that the candidate has, or the other way round."""
    walls: dict[str, object] = {"workers": crew.workers["candidate"].isolation}
    baseline = crew.workers["baseline"].isolation
    if baseline.get("missing") != crew.workers["candidate"].isolation.get("missing"):
        walls["baseline"] = baseline
    return walls


def refuse_rows_too_large(rows: Sequence[Workload], device: Device) -> None:
    free = device.free_bytes()
    for row in rows:
        if (need := device.bytes_to_judge(row)) > free:
            raise EnvironmentProblem(
                f"row {row.id} does not fit: judging it takes about {need / 2**30:.1f} GiB, "
                f"{free / 2**30:.1f} GiB are free on {device.name}",
                "choose smaller rows with --rows (the smoke rows are sized for a CPU)",
            )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
