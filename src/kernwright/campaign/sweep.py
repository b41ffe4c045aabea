"""Sweep: every row of many tasks, each contender against one baseline, in slices, and no finished row twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernwright.baselines.adapter import Capability
from kernwright.baselines.store import Store
from kernwright.campaign.ledger import Ledger
from kernwright.errors import KernwrightError
from kernwright.judge.judge import Progress
from kernwright.judge.party import Party
from kernwright.judge.provision import provision
from kernwright.judge.request import JudgeRequest, judge
from kernwright.judge.verdict import Verdict
from kernwright.tasks.baseline import Baseline, find_baseline
from kernwright.tasks.shipped import SHIPPED, Shipped, find_contender
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

MOST_ROWS = 40  # in one judgement: what is lost when a machine is taken away in the middle of it


@dataclass(frozen=True)
class Leg:
    """One contender (or the baseline itself, or a family of the ops that ship) against one baseline on one task."""

    task: Task
    baseline: Baseline
    contender: Baseline | Shipped
    target: str = "none"  # what libraries of the ops that ship are built for, where they are the contender

    @property
    def is_against_itself(self) -> bool:
        return self.contender == self.baseline

    @property
    def label(self) -> str:
        return f"{self.task.name}: {self.contender.name} against {self.baseline.name}"

    def refuse_missing_packages(self, rows: Sequence[Workload], capability: Capability | None) -> None:
        """Before the first judgement: what is not fetched would fail on every row."""
        for contender in (self.baseline, self.contender):
            party = Party.of_contender(contender)
            if party.published and (ops := party.ops(self.task, rows, capability)):
                party.published.orders(ops, Store())

    def skipped(self, row: Workload) -> str | None:
        """Why a row of its ops is left out. One that a baseline declines is not: its verdict says so."""
        if isinstance(self.contender, Shipped) and row.op in self.contender.ops:
            return provision(self.contender.ops, self.target).skips(row.op)
        return None

    def rows(self, wanted: str) -> list[Workload]:
        rows = self.task.select(wanted)
        if isinstance(self.contender, Shipped):
            return [row for row in rows if row.op in self.contender.ops and self.skipped(row) is None]
        return list(rows)

    def holds(self, verdict: Verdict) -> bool:
        """Whether a verdict is of this leg as it stands today: a changed task or baseline is another one."""
        return (verdict.task_digest, verdict.baseline_digest, verdict.candidate_digest) == (
            self.task.digest,
            self.baseline.digest,
            self.contender.digest,
        )


def legs_of(tasks: Sequence[Task], baseline: str, contenders: Sequence[str], target: str = "none") -> Iterator[Leg]:
    """A leg for each family of the ops that ship: a changed kernel leaves the records of the others standing."""
    if SHIPPED in contenders:  # all of their ops at once: to be asked takes a process seconds
        provision(sorted({op for task in tasks for op in Shipped.of(task).ops}), target)
    for task in tasks:
        for name in contenders:
            contender = find_contender(task, name)
            for own in contender.by_family() if isinstance(contender, Shipped) else [contender]:
                yield Leg(task, find_baseline(task, baseline), own, target)


@dataclass
class Sweep:
    """Legs, the rows that each is to be judged on, and the time there is."""

    legs: Sequence[Leg]
    rows: str
    device: str
    ledger: Path
    minutes: float = 0.0
    wait_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    troubles: dict[tuple[str, str], str] = field(default_factory=dict)  # by leg and row: it could not be judged
    _read: dict[str, tuple[int, list[Verdict]]] = field(default_factory=dict)  # by run, with its length then

    def outstanding(self, leg: Leg) -> list[Workload]:
        """Rows without a verdict. One that failed has one; one that was interrupted or could not be judged has not."""
        done = {row.id for verdict in self.verdicts(leg) for row in verdict.rows}
        return [row for row in leg.rows(self.rows) if row.id not in done]

    def verdicts(self, leg: Leg) -> list[Verdict]:
        """What the ledger holds of a leg on this kind of device, and may be used as evidence."""
        found = (verdict for verdict in self._recorded() if verdict.task == leg.task.name)
        return [v for v in found if v.evidence and leg.holds(v) and _kind(v.provenance["device"]) == _kind(self.device)]

    def _recorded(self) -> list[Verdict]:
        """Every verdict of the ledger. A run that has not grown is not read again: a large ledger takes seconds, and
        every leg asks for it several times."""
        book = Ledger(self.ledger)
        for run in book.runs():
            size = book.run_path(run).stat().st_size
            if self._read.get(run, (-1, []))[0] != size:
                bodies = [record.body for record in book.records(run) if record.kind == "verdict"]
                self._read[run] = size, [Verdict.model_validate(body) for body in bodies]
        return [verdict for _, verdicts in self._read.values() for verdict in verdicts]

    def run(self, progress: Progress) -> Iterator[Verdict]:
        """Judgement after judgement, until nothing is outstanding or the next one would not fit into the time."""
        end = self.clock() + 60 * self.minutes if self.minutes else float("inf")
        seconds_a_row = 0.0
        for leg in self.legs:
            waiting = self.outstanding(leg)
            while waiting:
                left = end - self.clock()
                size = len(waiting) if not seconds_a_row else int(min(left / seconds_a_row, len(waiting)))
                if left <= 0 or size < 1:
                    return
                slice_, waiting = waiting[: min(size, MOST_ROWS)], waiting[min(size, MOST_ROWS) :]
                started = self.clock()
                yield from self._judged(leg, slice_, progress, end)
                seconds_a_row = (self.clock() - started) / len(slice_)

    def _judged(self, leg: Leg, rows: Sequence[Workload], progress: Progress, end: float) -> Iterator[Verdict]:
        """A slice; where it cannot be judged as a whole, its halves, so that one row costs no other, and few of them a
        judgement by itself."""
        try:
            yield self._judge(leg, rows, progress)
        except KernwrightError as trouble:
            if len(rows) == 1:
                self.troubles[leg.label, rows[0].id] = str(trouble)
                return
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                if self.clock() < end:
                    yield from self._judged(leg, half, progress, end)

    def _judge(self, leg: Leg, rows: Sequence[Workload], progress: Progress) -> Verdict:
        verdict = judge(
            JudgeRequest(
                task=str(leg.task.folder), candidate=None, baseline=leg.baseline.name,
                contender=None if leg.is_against_itself else leg.contender.name,
                against_itself=leg.is_against_itself, rows=",".join(row.id for row in rows), device=self.device,
                ledger=self.ledger, wait_s=self.wait_s,
            ),
            progress,
        )  # fmt: skip
        if verdict.interrupted:
            raise KeyboardInterrupt
        return verdict


def _kind(device: str) -> str:
    return device.partition(":")[0]
