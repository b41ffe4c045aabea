"""PairState: one pair under judgement: its rows so far, its provenance, and the run that it writes into the ledger.

Each pair leaves the same record, no matter how many pairs are judged together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from kernwright.judge.contest.contestant import Contestant
from kernwright.judge.contest.pair import Pair
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.device.device import Device
from kernwright.judge.record.decision import overall
from kernwright.judge.record.headline import headline_of, interrupted_at, reasons_of
from kernwright.judge.record.provenance import Provenance
from kernwright.judge.record.round_record import RoundQuads
from kernwright.judge.record.sample import Sample
from kernwright.judge.record.verdict import UNTIMED, Verdict
from kernwright.judge.rounds.row_state import RowState
from kernwright.ledger.ledger import RunWriter
from kernwright.tasks.admission_file import why_not_admitted
from kernwright.tasks.policy import TimingPolicy
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload


@dataclass(eq=False)
class PairState:
    """A contender against a baseline, on every row."""

    pair: Pair
    task: Task
    baseline: Contestant
    candidate: Contestant
    rows: Sequence[Workload]
    device: Device
    policy: TimingPolicy
    provenance: Provenance
    writer: RunWriter
    quick: bool = False
    seeded: bool = False
    untimed: str | None = None  # why no row of this pair is timed
    problem: Exception | None = None  # why there will be no verdict
    recorded_rounds: set[int] = field(default_factory=set)
    _states: dict[str, RowState] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)  # rows that count even if the judgement ends early

    def __post_init__(self) -> None:
        self._states = {
            row.id: RowState(row=row, untimed=UNTIMED if row.set == "grid" else self.untimed) for row in self.rows
        }
        for state in self.states:
            for side, contestant in (("baseline", self.baseline), ("candidate", self.candidate)):
                if side == "baseline" and state.untimed is not None:
                    continue  # a baseline is never called on rows that are not timed
                if state.pending and (why := contestant.declines(self.task, state.row, self.device.capability)):
                    state.fail(f"the {side} declines: {why}")
        self._note_finished(self.rows)

    @property
    def states(self) -> list[RowState]:
        return list(self._states.values())

    def on(self, row: Workload) -> RowState:
        return self._states[row.id]

    def waits_for(self, row: Workload) -> bool:
        """Return whether the row is not yet decided."""
        return self.problem is None and self.on(row).pending

    @property
    def pending(self) -> bool:
        return any(self.waits_for(row) for row in self.rows)

    def look(self, number: int, rounds: int | None, rows: Sequence[Workload] | None = None) -> None:
        """Take the sequential test's look at every open row after a round, or at the given rows.

        `rounds` is the maximum number of rounds, if it is below the policy's.
        """
        looked_at = self.rows if rows is None else rows
        if number + 1 >= self.policy.first_look:
            for state in map(self.on, looked_at):
                if state.pending:
                    state.look(self.policy, rounds)
        self._note_finished(looked_at)

    def end_looks(self, rounds: int, rows: Sequence[Workload] | None = None) -> None:
        """Note on open rows that the requested rounds are used up."""
        for state in map(self.on, self.rows if rows is None else rows):
            if state.pending and not state.awaits_wall:
                state.reasons.append(f"undecided after the {rounds} rounds that were requested")

    def end_early(self, turns: Sequence[Workload], number: int, rounds: int | None) -> None:
        """Finish the rows that completed their part of an interrupted round, and the grid rows that were checked.

        A failure on any other row may be caused by the interruption and does not count.
        """
        self.look(number, rounds, turns)
        if number + 1 == (rounds or self.policy.max_rounds):
            if rounds is not None:
                self.end_looks(rounds, turns)
            self._finished |= {row.id for row in turns}
        self._note_finished([state.row for state in self.states if state.decided])

    def _note_finished(self, rows: Iterable[Workload]) -> None:
        self._finished |= {row.id for row in rows if not self.on(row).pending}

    # Records

    def note_workers(self, group: WorkerGroup) -> None:
        """Record the isolation of the workers and the compiled files that they found."""
        baseline, candidate = (group.workers[name].isolation for name in (self.pair.baseline, self.pair.candidate))
        self.provenance.isolation["workers"] = asdict(candidate)
        if baseline.missing != candidate.missing:
            self.provenance.isolation["baseline"] = asdict(baseline)
        self.provenance.compiled = group.about_compiled(self.pair)

    def record_correctness(self) -> None:
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

    def samples_of(self, number: int) -> dict[str, list[Sample]]:
        """Return the samples of one round by row."""
        found = {state.row.id: [own for own in state.samples if own.round == number] for state in self.states}
        return {row: samples for row, samples in found.items() if samples}

    def abandon(self, cause: Exception) -> None:
        """Give the pair up: it gets no verdict. The cause is recorded once."""
        if self.problem is None:
            self.problem = cause
            self.writer.append("abandoned", {"cause": f"{type(cause).__name__}: {cause}"})

    def conclude(self, interrupted: bool) -> Verdict:
        """Record the verdict over all rows or, after an interruption, over the finished ones.

        With no finished row the verdict is no evidence.
        """
        finished = [state for state in self.states if not interrupted or state.row.id in self._finished]
        states = finished or self.states
        rows = tuple(state.verdict(self.policy, self.device, self.quick) for state in states)
        headline, outcome = headline_of(states, rows, self.policy, self.quick)
        found = overall([row.verdict for row in rows], outcome)
        told = [interrupted_at(len(finished), len(self.rows))] if interrupted else []
        verdict = Verdict(
            task=self.task.name,
            task_digest=self.task.digest,
            baseline=self.baseline.name,
            baseline_digest=self.baseline.digest,
            candidate=self.candidate.name,
            candidate_digest=self.candidate.digest_for({state.row.op for state in states}),
            style="returns",
            metric=self.policy.decides,
            verdict=found,
            reasons=(*told, *reasons_of(rows, found, headline[self.policy.decides], self.policy.decides)),
            headline=headline,
            rows=rows,
            quick=self.quick,
            interrupted=interrupted,
            evidence=bool(finished) and not (self.quick or self.seeded),
            not_admitted=why_not_admitted(self.task),
            provenance=self.provenance.model_dump(mode="json"),
            run=self.writer.run,
        )
        self.writer.append("verdict", verdict.model_dump(mode="json"))
        return verdict


def record_round(pairs: Iterable[PairState], number: int) -> None:
    """Write the quads of a round once, and the record of each pair, before the next round begins."""
    new = [pair for pair in pairs if number not in pair.recorded_rounds]
    quads = RoundQuads()
    for pair in new:
        for row, samples in pair.samples_of(number).items():
            quads.add(row, samples)
    content = quads.blob()
    for pair in new:
        body = quads.body(number, pair.writer.blob(content), pair.pair.roles, pair.samples_of(number))
        pair.writer.append("round", body)
        pair.recorded_rounds.add(number)
