"""PairState: one pair under judgement: its rows so far, its provenance, and the run that it writes into the ledger.

However many pairs are judged together, each leaves the record that it would leave by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from kernwright.judge.decision import overall
from kernwright.judge.device import Device
from kernwright.judge.headline import headline_of, interrupted_at, reasons_of
from kernwright.judge.pair import Pair
from kernwright.judge.party import Party
from kernwright.judge.provenance import Provenance
from kernwright.judge.row_state import RowState
from kernwright.judge.sides import Crew
from kernwright.judge.verdict import Verdict
from kernwright.ledger.ledger import RunWriter
from kernwright.tasks.policy import TimingPolicy
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload


@dataclass(eq=False)
class PairState:
    """A contender against a baseline, on every row."""

    pair: Pair
    task: Task
    baseline: Party
    candidate: Party
    rows: Sequence[Workload]
    device: Device
    policy: TimingPolicy
    provenance: Provenance
    writer: RunWriter
    quick: bool = False
    seeded: bool = False
    problem: Exception | None = None  # there will be no verdict, for this
    _states: dict[str, RowState] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)  # rows that count, though the judgement ends early

    def __post_init__(self) -> None:
        self._states = {row.id: RowState(row) for row in self.rows}
        for state in self.states:
            for side, party in (("baseline", self.baseline), ("candidate", self.candidate)):
                if side == "baseline" and state.row.set == "grid":
                    continue  # it is never called there
                if state.pending and (why := party.declines(self.task, state.row, self.device.capability)):
                    state.fail(f"the {side} declines: {why}")
        self._note_finished(self.rows)

    @property
    def states(self) -> list[RowState]:
        return list(self._states.values())

    def on(self, row: Workload) -> RowState:
        return self._states[row.id]

    def waits_for(self, row: Workload) -> bool:
        """Whether there is anything left to find out on a row."""
        return self.problem is None and self.on(row).pending

    @property
    def pending(self) -> bool:
        return any(self.waits_for(row) for row in self.rows)

    def look(self, number: int, rounds: int | None, rows: Sequence[Workload] | None = None) -> None:
        """The sequential test's look at every row that is not decided, when this round is over; or when it is for some
        rows. `rounds`: where fewer than the policy has."""
        looked_at = self.rows if rows is None else rows
        if number + 1 >= self.policy.first_look:
            for state in map(self.on, looked_at):
                if state.pending:
                    state.look(self.policy, rounds)
        self._note_finished(looked_at)

    def end_looks(self, rounds: int, rows: Sequence[Workload] | None = None) -> None:
        """There are no more rounds, though the policy would allow some."""
        for state in map(self.on, self.rows if rows is None else rows):
            if state.pending and not state.awaits_wall:
                state.reasons.append(f"undecided after the {rounds} rounds that it was given")

    def end_early(self, turns: Sequence[Workload], number: int, rounds: int | None) -> None:
        """In the middle of a round, of which some rows had their whole turn: for these it is over. Rows of a grid are
        finished when they were examined. What fell over on any other row may have done so for being interrupted."""
        self.look(number, rounds, turns)
        if number + 1 == (rounds or self.policy.max_rounds):
            if rounds is not None:
                self.end_looks(rounds, turns)
            self._finished |= {row.id for row in turns}
        self._note_finished([state.row for state in self.states if state.decided])

    def _note_finished(self, rows: Iterable[Workload]) -> None:
        self._finished |= {row.id for row in rows if not self.on(row).pending}

    # Records

    def note_crew(self, crew: Crew) -> None:
        """The walls that stood, and what compilers had made before."""
        baseline, candidate = (crew.workers[name].isolation for name in (self.pair.baseline, self.pair.candidate))
        self.provenance.isolation["workers"] = candidate
        if baseline.get("missing") != candidate.get("missing"):
            self.provenance.isolation["baseline"] = baseline
        self.provenance.compiled = crew.about_compiled(self.pair)

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

    def record_round(self, number: int) -> None:
        """What this round measured, safe on disk before the next begins."""
        blob = self.writer.blob(json.dumps(samples_of(self.states, number)).encode())
        self.writer.append("round", {"round": number, "samples": f"blob:{blob}"})

    def abandon(self, cause: Exception) -> None:
        """Nothing of it counts. Said once."""
        if self.problem is None:
            self.problem = cause
            self.writer.append("abandoned", {"cause": f"{type(cause).__name__}: {cause}"})

    def conclude(self, interrupted: bool) -> Verdict:
        """Over all rows; where it was interrupted, over those that are finished. Where none is, nothing is proved."""
        finished = [state for state in self.states if not interrupted or state.row.id in self._finished]
        states = finished or self.states
        samples = samples_of(state for state in states if state.samples)
        blob = f"blob:{self.writer.blob(json.dumps(samples).encode())}" if samples else None
        rows = tuple(
            state.verdict(self.policy, self.device, self.quick, blob if state.samples else None) for state in states
        )
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
            verdict=found,
            reasons=(*told, *reasons_of(rows, found)),
            headline=headline,
            rows=rows,
            quick=self.quick,
            interrupted=interrupted,
            evidence=bool(finished) and not (self.quick or self.seeded),
            provenance=self.provenance.model_dump(mode="json"),
        )
        self.writer.append("verdict", verdict.model_dump(mode="json"))
        return verdict


def samples_of(states: Iterable[RowState], number: int | None = None) -> dict[str, list[dict[str, object]]]:
    """By row: of one round, or of all."""
    return {
        state.row.id: [asdict(sample) for sample in state.samples if number in (None, sample.round)] for state in states
    }
