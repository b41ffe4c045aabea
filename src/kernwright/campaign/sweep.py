"""Sweep: judge every row of many tasks in slices, contenders against baselines, without repeating finished rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kernwright.baselines.adapter import Capability
from kernwright.baselines.lookup import find_baseline, find_contender
from kernwright.baselines.shipped import Shipped
from kernwright.campaign.time_limit import checked_minutes
from kernwright.core.errors import KernwrightError
from kernwright.judge.contest.contestant import Contestant
from kernwright.judge.contest.shipped_build import find_shipped_build
from kernwright.judge.device.problems import RowsTooLarge
from kernwright.judge.record.recorded import recorded_bodies
from kernwright.judge.record.verdict import Verdict
from kernwright.judge.request import JudgeRequest, judge_together
from kernwright.judge.rounds.progress import Progress
from kernwright.ledger.ledger import Ledger
from kernwright.packages.store import Store
from kernwright.tasks.baseline import Baseline
from kernwright.tasks.candidate import SHIPPED
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

MOST_ROWS = 40  # rows of one judgement, which are lost if a machine is taken away, or partly if it is interrupted
# Rows of a grid, which take a fraction of a second each, while starting a judgement takes several.
MOST_UNTIMED_ROWS = 500
FIRST_ROWS = 3  # rows of the first slice if time is short, because the time per row is not known yet


@dataclass(frozen=True)
class Leg:
    """One contender (or the baseline itself, or a family of the ops that ship) against one baseline on one task."""

    task: Task
    baseline: Baseline
    contender: Baseline | Shipped
    target: str = "none"  # machine for which libraries of the shipped ops are built, if they are the contender

    @property
    def is_against_itself(self) -> bool:
        return self.contender == self.baseline

    @property
    def sides(self) -> set[tuple[str, str]]:
        """Return the role and the digest of each contestant. Legs that are judged together share equal contestants."""
        baseline = self.baseline.digest
        return {("baseline", baseline), ("again", baseline), ("candidate", self.contender.digest)}

    def may_join(self, other: Leg) -> bool:
        """Return whether both legs may be judged at once.

        The shipped ops are as untrusted as a candidate: they are never judged together with another contender, but may
        be judged against several baselines at once.
        """
        if self.task.digest != other.task.digest:
            return False
        trusted = isinstance(self.contender, Baseline) and isinstance(other.contender, Baseline)
        return trusted or self.contender == other.contender

    @property
    def label(self) -> str:
        return f"{self.task.name}: {self.contender.name} against {self.baseline.name}"

    def refuse_missing_packages(self, rows: Sequence[Workload], capability: Capability | None) -> None:
        """Raise an error before the first judgement if a package was not fetched: every row would fail."""
        for contender in (self.baseline, self.contender):
            contestant = Contestant.of_contender(contender)
            if contestant.published and (ops := contestant.ops(self.task, rows, capability)):
                contestant.published.orders(ops, Store())

    def skipped(self, row: Workload) -> str | None:
        """Return the reason why a row of the leg's ops is left out. A row that a baseline declines is not: its verdict
        says so."""
        if isinstance(self.contender, Shipped) and row.op in self.contender.ops:
            return find_shipped_build(self.contender.ops, self.target).skips(row.op)
        return None

    def rows(self, wanted: str) -> list[Workload]:
        rows = self.task.matching(wanted)
        if isinstance(self.contender, Shipped):
            return [row for row in rows if row.op in self.contender.ops and self.skipped(row) is None]
        return list(rows)

    def holds(self, verdict: Verdict) -> bool:
        """Return whether a verdict belongs to this leg, with the present digests."""
        return (verdict.task_digest, verdict.baseline_digest, verdict.candidate_digest) == (
            self.task.digest,
            self.baseline.digest,
            self._digest_in(verdict),
        )

    def _digest_in(self, verdict: Verdict) -> str:
        """Return the digest as a judgement records it: of the shipped ops, it covers only those that a slice has rows
        of."""
        if not isinstance(self.contender, Shipped):
            return self.contender.digest
        judged = tuple(sorted({row.op for row in verdict.rows}))
        if judged not in self._digests:  # the verdict's ops may belong to several families, not only to the leg's
            self._digests[judged] = Shipped.of(self.task).only(judged).digest
        return self._digests[judged]

    @cached_property
    def _digests(self) -> dict[tuple[str, ...], str]:
        """Digests by ops. Reading their sources for every verdict of a large ledger would take minutes."""
        return {}


def legs_of(tasks: Sequence[Task], baseline: str, contenders: Sequence[str], target: str = "none") -> Iterator[Leg]:
    """Return the legs, one for each family of the shipped ops: a changed kernel leaves the records of other families
    valid."""
    if SHIPPED in contenders:  # asked for all ops at once, because the process that answers takes seconds
        find_shipped_build(sorted({op for task in tasks for op in Shipped.of(task).ops}), target)
    for task in tasks:
        for name in contenders:
            contender = find_contender(task, name)
            for own in contender.by_family() if isinstance(contender, Shipped) else [contender]:
                yield Leg(task, find_baseline(task, baseline), own, target)


@dataclass
class Pace:
    """The time that rows take. The start of a judgement weighs most on the few rows of a sweep's first slice, so all
    slices count. The last slice counts alone if it was slower."""

    spent_s: float = 0.0
    units: int = 0  # rows times sides
    latest_s: float = 0.0  # time per unit in the last slice

    def note(self, seconds: float, units: int) -> None:
        self.spent_s, self.units, self.latest_s = self.spent_s + seconds, self.units + units, seconds / units

    def rows_in(self, seconds: float, sides: int) -> float:
        if not self.units:
            return FIRST_ROWS
        return seconds / (max(self.latest_s, self.spent_s / self.units, 1e-9) * sides)


@dataclass
class Sweep:
    """Legs, the rows on which each is to be judged, and the available time."""

    legs: Sequence[Leg]
    rows: str
    device: str
    ledger: Path
    minutes: float = 0.0
    rounds: int | None = None  # maximum rounds of a row
    wait_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    # By leg and row: the reason why it could not be judged.
    troubles: dict[tuple[str, str], str] = field(default_factory=dict)
    # By run, with its length when it was read.
    _read: dict[str, tuple[int, list[Verdict]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_minutes(self.minutes)

    def outstanding(self, leg: Leg) -> list[Workload]:
        """Return the rows without a verdict. A failed row has one; an interrupted row, or one that could not be judged,
        has none."""
        done = {row.id for verdict in self.verdicts(leg) for row in verdict.rows}
        return [row for row in leg.rows(self.rows) if row.id not in done]

    def verdicts(self, leg: Leg) -> list[Verdict]:
        """Return the verdicts of a leg on this kind of device that count as evidence in the task's deciding metric."""
        own = (leg.task.name, leg.task.policy.decides)
        found = (verdict for verdict in self._recorded() if (verdict.task, verdict.metric) == own)
        return [v for v in found if v.evidence and leg.holds(v) and _kind(v.provenance["device"]) == _kind(self.device)]

    def _recorded(self) -> list[Verdict]:
        """Return every verdict of the ledger. A run that has not grown is not read again, because a large ledger takes
        seconds and every leg needs it several times."""
        book = Ledger(self.ledger)
        for run in book.runs():
            size = book.run_size(run)
            if self._read.get(run, (-1, []))[0] != size:
                self._read[run] = size, [record.verdict() for record in recorded_bodies(book, runs=[run])]
        return [verdict for _, verdicts in self._read.values() for verdict in verdicts]

    def run(self, progress: Progress) -> Iterator[Verdict]:
        """Judge slice after slice until nothing is outstanding or the next slice would not fit into the time."""
        end = self.clock() + 60 * self.minutes if self.minutes else float("inf")
        pace = Pace()
        for legs, waiting in self._groups():
            sides = len(set().union(*(leg.sides for leg in legs)))
            most = MOST_UNTIMED_ROWS if all(row.set == "grid" for row in waiting) else MOST_ROWS
            while waiting:
                left = end - self.clock()
                fit = pace.rows_in(left, sides) if self.minutes else most
                size = int(min(fit, len(waiting), most))
                if left <= 0 or size < 1:
                    return
                slice_, waiting = waiting[:size], waiting[size:]
                started = self.clock()
                yield from self._judged(legs, slice_, progress, end)
                pace.note(self.clock() - started, len(slice_) * sides)

    def _groups(self) -> Iterator[tuple[list[Leg], list[Workload]]]:
        """Yield legs that are judged together, with the rows that each still needs. If time was up when only some of
        them had a verdict on a row, they are still judged together afterwards."""
        legs = list(self.legs)
        while legs:
            company, others = [legs[0]], []
            for leg in legs[1:]:
                if not leg.may_join(legs[0]):
                    others.append(leg)
                elif all(leg.sides != known.sides for known in company):  # a duplicate request is judged once
                    company.append(leg)
            legs = others
            rows: dict[str, Workload] = {}
            waits: dict[str, tuple[int, ...]] = {}  # the legs that need each row
            for number, leg in enumerate(company):
                for row in self.outstanding(leg):
                    rows[row.id] = row
                    waits[row.id] = (*waits.get(row.id, ()), number)
            for numbers in dict.fromkeys(waits.values()):
                yield [company[n] for n in numbers], [rows[own] for own, who in waits.items() if who == numbers]

    def _judged(
        self, legs: Sequence[Leg], rows: Sequence[Workload], progress: Progress, end: float
    ) -> Iterator[Verdict]:
        """Judge a slice. Legs without a verdict in a common judgement are judged one by one. If a single leg cannot be
        judged on a slice, its halves are, so that one row affects few others."""
        try:
            verdicts = self._judge(legs, rows, progress)
        except KernwrightError as trouble:
            if len(legs) == len(rows) == 1:
                self.troubles[legs[0].label, rows[0].id] = str(trouble)
                return
            parts = _parts(legs, rows, trouble)
        else:
            yield from (verdict for verdict in verdicts if verdict is not None)
            parts = [([leg], rows) for leg, verdict in zip(legs, verdicts, strict=True) if verdict is None]
        for some, part in parts:
            if self.clock() < end:
                yield from self._judged(some, part, progress, end)

    def _judge(self, legs: Sequence[Leg], rows: Sequence[Workload], progress: Progress) -> list[Verdict | None]:
        """Return the verdict of each leg that came to one."""
        requests = [
            JudgeRequest(
                task=str(leg.task.folder), candidate=None, baseline=leg.baseline.name,
                contender=None if leg.is_against_itself else leg.contender.name,
                against_itself=leg.is_against_itself, rows=",".join(row.id for row in rows), device=self.device,
                ledger=self.ledger, wait_s=self.wait_s, rounds=self.rounds,
            )
            for leg in legs
        ]  # fmt: skip
        verdicts = judge_together(requests, progress)
        if any(verdict.interrupted for verdict in verdicts if verdict):
            raise KeyboardInterrupt
        return verdicts


def _parts(
    legs: Sequence[Leg], rows: Sequence[Workload], trouble: KernwrightError
) -> list[tuple[Sequence[Leg], Sequence[Workload]]]:
    """Return the judgements that replace one that could not be made. Rows that are too large for so many sides leave
    the other rows together."""
    large = [row for row in rows if isinstance(trouble, RowsTooLarge) and row.id in trouble.rows]
    if 0 < len(large) < len(rows):
        return [(legs, [row for row in rows if row not in large]), (legs, large)]
    if len(legs) > 1:
        return [([leg], rows) for leg in legs]
    return [(legs, rows[: len(rows) // 2]), (legs, rows[len(rows) // 2 :])]


def _kind(device: str) -> str:
    return device.partition(":")[0]
