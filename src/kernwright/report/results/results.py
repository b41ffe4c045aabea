"""Results: how the ops that ship compare with every baseline on the frozen rows, gathered from a ledger.

A ratio comes from one run, in which both sides were measured in turn. For each row and baseline the newest record
counts; records of the present sources and baseline take precedence. A record of another task digest is stale and not
used. A record against a baseline that has changed is stale and shown with a mark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kernwright.baselines.lock import read_lock
from kernwright.baselines.shipped import Shipped
from kernwright.judge.record.recorded import RecordedBody, recorded_bodies
from kernwright.judge.record.verdict import MetricResult, RanImplementation, Verdict
from kernwright.ledger.ledger import Ledger
from kernwright.report.current_baselines import CurrentBaselines
from kernwright.report.field.field import Standing
from kernwright.report.machines import machines_of, model_of, refuse_mixed_models
from kernwright.report.results.sanitized import Sanitized
from kernwright.tasks.candidate import SHIPPED
from kernwright.tasks.policy import Metric
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

BUILT_IN_ORDER = ("compile", "eager")  # after the published baselines, which come in the order of the lock file
LEAST_OF_BEST, SHORT_US, MOST_LOST_US = 0.97, 10.0, 0.3
THEIRS = "the baseline "  # prefix of reasons that concern the baseline
Key = tuple[str, str, str]  # task, row, baseline


@dataclass
class Results:
    """One standing for each task, row and baseline on one kind of device. Rows of grids are kept apart."""

    tasks: Sequence[Task]
    device: str
    rows: str
    standings: dict[Key, Standing] = field(default_factory=dict)
    grid: dict[Key, Standing] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    stale_runs: set[str] = field(default_factory=set)
    sanitized: Sanitized = field(default_factory=Sanitized)
    _digests: dict[tuple[str, ...], str] = field(default_factory=dict)  # digests of the ops that a verdict has rows of

    @classmethod
    def gathered(
        cls, ledger: Ledger, tasks: Sequence[Task], device: str, rows: str, model: str | None = None
    ) -> Results:
        """Return the results of a ledger.

        Args:
            ledger: the records.
            tasks: the tasks to gather.
            device: `cpu` or `cuda`.
            rows: globs over row ids, or sets.
            model: use records of this device model only. Without it, records of several models are an error.
        """
        found = cls(tasks=tasks, device=device, rows=rows)
        by_name = {task.name: task for task in tasks}
        outdated: dict[Key, tuple[str, str]] = {}
        sanitized: list[RecordedBody] = []
        for record in recorded_bodies(ledger, ("verdict", "sanitizer")):
            body = record.body
            if record.kind == "sanitizer" and body["candidate"] == SHIPPED and body["task"] in by_name:
                sanitized.append(record)
                continue
            if record.kind != "verdict" or not is_of_what_ships(body) or not body.get("evidence"):
                continue
            verdict = record.verdict()
            task = by_name.get(verdict.task)
            if task is None or verdict.metric != task.policy.decides:  # `judge --metric` asked another question
                continue
            if verdict.provenance["device"].partition(":")[0] != device:
                continue
            if model is not None and model_of(verdict) != model:
                continue
            wanted, frozen = ({row.id for row in rows} for rows in (found.wanted(task), task.rows))
            standings = {
                (task.name, row.id, verdict.baseline): Standing(row, verdict, record.run)
                for row in verdict.rows
                if row.id in wanted or row.id not in frozen
            }
            if verdict.task_digest != task.digest:
                outdated |= dict.fromkeys(standings, (verdict.provenance["finished"], record.run))
                continue
            for key, standing in standings.items():
                found._keep(found.standings if standing.row.id in wanted else found.grid, key, standing)
        for key, (when, run) in outdated.items():
            if key not in found.standings and key not in found.grid:  # no later record has taken its place
                found.stale.append("of another task digest: {}: {} against {}, {}, run {}".format(*key, when, run))
                found.stale_runs.add(run)
        for key, standing in {**found.standings, **found.grid}.items():
            if not found.baselines_today.hold(standing.run):
                when = f"{standing.run.provenance['finished']}, run {standing.recorded_in}"
                found.stale.append("of another baseline than today's: {}: {} against {}, {}".format(*key, when))
        refuse_mixed_models(found.runs())
        own_model = model or next(map(model_of, found.runs()), None)
        for record in sanitized:
            if device == "cuda" and own_model == record.body["hardware"]["model"]:
                found.sanitized.add(record.body, by_name[record.body["task"]], record.run)
        return found

    def _keep(self, among: dict[Key, Standing], key: Key, standing: Standing) -> None:
        known = among.get(key)
        if known is None or self.is_current(standing) or not self.is_current(known):
            among[key] = standing

    def runs(self) -> list[Verdict]:
        """Return the verdicts that the pages use, each once."""
        used = (*self.standings.values(), *self.grid.values())
        return list({id(standing.run): standing.run for standing in used}.values())

    @property
    def recorded_in(self) -> set[str]:
        """The ledger's runs that the pages use."""
        used = {own.recorded_in for own in (*self.standings.values(), *self.grid.values())}
        return used | self.stale_runs | self.sanitized.recorded_in

    @property
    def machines(self) -> list[str]:
        return machines_of(self.runs())

    @cached_property
    def baselines_today(self) -> CurrentBaselines:
        return CurrentBaselines(self.tasks)

    def only_current(self) -> Results:
        """Return the results without records of other sources or baselines than those of today."""
        kept, grid = (
            {key: standing for key, standing in among.items() if self.is_current(standing)}
            for among in (self.standings, self.grid)
        )
        return replace(self, standings=kept, grid=grid)

    def is_current(self, standing: Standing) -> bool:
        """Return whether the sources and the baseline of a record are those of today."""
        if not self.baselines_today.hold(standing.run):
            return False
        judged = tuple(sorted({row.op for row in standing.run.rows}))
        if judged not in self._digests:
            self._digests[judged] = Shipped(judged).digest
        return standing.run.candidate_digest == self._digests[judged]

    # Baselines, families and rows

    @cached_property
    def baselines(self) -> list[str]:
        """The baselines that ops were judged against, published ones first."""
        return self._in_order(baseline for _, _, baseline in self.standings)

    def baselines_of(self, task: Task) -> list[str]:
        return self._in_order(baseline for name, _, baseline in self.standings if name == task.name)

    @staticmethod
    def _in_order(names: Iterable[str]) -> list[str]:
        order = [*read_lock().names(), *BUILT_IN_ORDER]
        return sorted(set(names), key=lambda name: (order.index(name) if name in order else len(order), name))

    @cached_property
    def families(self) -> list[Task]:
        return [task for task in self.tasks if self.baselines_of(task)]

    def wanted(self, task: Task) -> tuple[Workload, ...]:
        return task.matching(self.rows)

    def judged(self, task: Task) -> list[Workload]:
        return [row for row in self.wanted(task) if self.of_row(task, row)]

    def every_row(self) -> Iterator[tuple[Task, Workload]]:
        return ((task, row) for task in self.families for row in self.judged(task))

    # One row

    def standing(self, task: Task, row: Workload | str, baseline: str) -> Standing | None:
        return self.standings.get((task.name, row if isinstance(row, str) else row.id, baseline))

    def of_row(self, task: Task, row: Workload) -> dict[str, Standing]:
        found = ((baseline, self.standing(task, row, baseline)) for baseline in self.baselines)
        return {baseline: standing for baseline, standing in found if standing}

    def result(self, task: Task, row: Workload | str, baseline: str, metric: Metric) -> MetricResult | None:
        standing = self.standing(task, row, baseline)
        return standing.result(metric) if standing else None

    def best_peer(self, task: Task, row: Workload, metric: Metric) -> tuple[str, MetricResult] | None:
        """Return the baseline with the lowest ratio."""
        found = [(baseline, self.result(task, row, baseline, metric)) for baseline in self.baselines]
        timed = [(baseline, result) for baseline, result in found if result]
        return min(timed, key=lambda pair: pair[1].ratio, default=None)

    def ran(self, task: Task, row: Workload) -> RanImplementation | None:
        return next((standing.row.ran for standing in self.of_row(task, row).values() if standing.row.ran), None)

    def share_of_copy(self, task: Task, row: Workload) -> float | None:
        """Return the share of a copy of our kernels, from the first run that has both times."""
        shares = (standing.share_of_copy() for standing in self.of_row(task, row).values())
        return next((share for share in shares if share), None)

    def fault(self, task: Task, row: Workload) -> str | None:
        """Return what is wrong with our op on a row, or None."""
        for baseline, standing in self.of_row(task, row).items():
            if is_our_fault(standing):
                return f"{standing.row.verdict} against {baseline}: {'; '.join(standing.row.reasons[:1])}"
        return None


def is_of_what_ships(body: Mapping[str, Any]) -> bool:
    """Return whether a record is of the ops that ship. The name does not suffice, since a folder may have it."""
    contender = body.get("provenance", {}).get("contender", {})
    return body.get("candidate") == SHIPPED and contender.get("package") == SHIPPED


def declines(standing: Standing) -> bool:
    """Return whether a row has no time because the baseline does not run it."""
    return standing.row.verdict == "failed" and not is_our_fault(standing)


def is_our_fault(standing: Standing) -> bool:
    own = standing.row
    if own.verdict == "failed":
        return not any(reason.startswith(THEIRS) for reason in own.reasons)
    return own.verdict in ("incorrect", "tampered")


def loses_clearly(result: MetricResult) -> bool:
    """Return whether a row is slower than a baseline beyond doubt.

    The whole interval lies below LEAST_OF_BEST. A time below SHORT_US must be slower by more than MOST_LOST_US, because
    a smaller difference may come from the clock.
    """
    high = result.interval[1]
    if result.candidate_us < SHORT_US:
        return result.candidate_us * (1 - high) > MOST_LOST_US
    return high < LEAST_OF_BEST


def geomean(ratios: Iterable[float]) -> tuple[float, int] | None:
    """Return the geometric mean of ratios and their number, or None."""
    logs = [math.log(ratio) for ratio in ratios]
    return (math.exp(sum(logs) / len(logs)), len(logs)) if logs else None


def tokens_of(row: Workload) -> int:
    """Return the number of rows of channels of a call's first output. In a norm over heads every head is one."""
    first = next(iter((row.concrete_outputs() or row.concrete_inputs()).values()))
    return math.prod(first.shape[:-1])
