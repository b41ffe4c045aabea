"""Field: how published baselines compare with each other on the frozen rows, gathered from a ledger.

A ratio comes from one run, in which both sides were measured in turn. Times of different runs are shown next to each
other and never divided. A record of another task digest, or of a baseline that has changed since, is not used. It is
stale until all of its rows have been judged again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from kernwright.judge.record.recorded import recorded_bodies
from kernwright.judge.record.verdict import MetricResult, Outcome, RowVerdict, Verdict
from kernwright.ledger.ledger import Ledger
from kernwright.report.current_baselines import CurrentBaselines
from kernwright.report.field.repeats import DeviceTime, Repeats
from kernwright.report.machines import gpu_of, model_of, refuse_mixed_models
from kernwright.tasks.candidate import CANDIDATE_FILE, SHIPPED
from kernwright.tasks.policy import Metric
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

DECLINES = "the candidate declines: "  # prefix of the judge's reason
DECLINED = "declined"
TIMED: frozenset[Outcome] = frozenset({"faster", "same", "slower", "inconclusive"})
Key = tuple[str, str, str]  # task, row, contender
Side = Literal["baseline_us", "candidate_us"]


@dataclass(frozen=True)
class Standing:
    """One contender on one row: the row's verdict, and the run that it comes from."""

    row: RowVerdict
    run: Verdict
    recorded_in: str = ""  # run of the ledger

    def result(self, metric: Metric) -> MetricResult | None:
        """Return the result of a metric, or None if the row is wrong in any way."""
        if self.row.verdict not in TIMED:
            return None
        found = self.row.metrics.get(metric)
        return found if isinstance(found, MetricResult) else None

    @property
    def gain(self) -> float:
        """The ratio that contenders are ranked by: `device` if it was measured, else `stream`."""
        results = [self.result("device"), self.result("stream")]
        return next((result.ratio for result in results if result), 0.0)

    @property
    def declines(self) -> bool:
        """Return whether the contender has no kernel for the row, which is no fault."""
        return self.row.verdict == "failed" and self.row.reasons[:1] != () and self.row.reasons[0].startswith(DECLINES)

    @property
    def state(self) -> str:
        """The verdict on the row, or `declined`."""
        return DECLINED if self.declines else self.row.verdict

    def share_of_copy(self, metric: Metric = "device", side: Side = "candidate_us") -> float | None:
        result = self.result(metric)
        return self.row.fastest_copy_us / getattr(result, side) if result and self.row.fastest_copy_us else None


@dataclass
class Field:
    """The newest standing of every contender on every row of some tasks, against one baseline, on one device."""

    tasks: Sequence[Task]
    baseline: str
    device: str
    rows: str
    standings: dict[Key, list[Standing]] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    stale_runs: set[str] = field(default_factory=set)

    @classmethod
    def gathered(
        cls, ledger: Ledger, tasks: Sequence[Task], baseline: str, device: str, rows: str, model: str | None = None
    ) -> Field:
        """Return the field of a ledger.

        Args:
            ledger: the records.
            tasks: the tasks to gather.
            baseline: the baseline that all contenders were compared with.
            device: `cpu` or `cuda`.
            rows: globs over row ids, or sets.
            model: use records of this device model only. Without it, records of several models are an error.
        """
        found = cls(tasks=tasks, baseline=baseline, device=device, rows=rows)
        wanted = {task.name: {row.id for row in found.wanted(task)} for task in found.families}
        today = CurrentBaselines(tasks)
        outdated: list[tuple[str, str, set[Key]]] = []
        for record in recorded_bodies(ledger):
            if record.body.get("task") not in wanted or not record.body.get("evidence"):
                continue
            verdict = record.verdict()
            if verdict.baseline != baseline or verdict.provenance["device"].partition(":")[0] != device:
                continue
            if verdict.metric != found.metric_of(verdict.task):  # `judge --metric` asked another question
                continue
            if verdict.candidate == SHIPPED or _is_of_a_folder(verdict):  # not a part of the field
                continue
            if model is not None and model_of(verdict) != model:
                continue
            standings = {
                (verdict.task, row.id, verdict.candidate): Standing(row, verdict, record.run)
                for row in verdict.rows
                if row.id in wanted[verdict.task]
            }
            if cause := found._outdated_by(verdict, today):
                finished = verdict.provenance["finished"]
                told = f"{cause}: {verdict.task}: {verdict.candidate}, {finished}, run {record.run}"
                outdated.append((told, record.run, set(standings)))
                continue
            for key, standing in standings.items():
                found.standings.setdefault(key, []).append(standing)
        for told, run, keys in outdated:
            if not keys <= found.standings.keys():  # Rows that were judged again since are no longer stale.
                found.stale.append(told)
                found.stale_runs.add(run)
        refuse_mixed_models(found.runs())
        return found

    def metric_of(self, task: str) -> Metric:
        """Return the deciding metric of a task's policy."""
        return next(own.policy.decides for own in self.tasks if own.name == task)

    @property
    def recorded_in(self) -> set[str]:
        """The ledger's runs that the page uses. Repeats use all records of a row, so that no such run is superseded."""
        return {own.recorded_in for found in self.standings.values() for own in found} | self.stale_runs

    def _outdated_by(self, verdict: Verdict, today: CurrentBaselines) -> str | None:
        if verdict.task_digest != next(task.digest for task in self.tasks if task.name == verdict.task):
            return "of another task digest"
        if not today.hold(verdict):
            return f"of another {verdict.baseline} than today's"
        return None if today.hold_contender(verdict) else f"of another {verdict.candidate} than today's"

    def runs(self) -> list[Verdict]:
        """Return the verdicts that the page uses."""
        return [standing.run for found in self.standings.values() for standing in found]

    @cached_property
    def contenders(self) -> list[str]:
        return sorted({contender for _, _, contender in self.standings if contender != self.baseline})

    @property
    def families(self) -> list[Task]:
        """The tasks with rows on the page."""
        return [task for task in self.tasks if self.wanted(task)]

    def wanted(self, task: Task) -> tuple[Workload, ...]:
        return task.matching(self.rows)

    def standing(self, task: Task, row: Workload | str, contender: str) -> Standing | None:
        found = self.standings.get((task.name, row if isinstance(row, str) else row.id, contender))
        return found[-1] if found else None

    def home(self, task: Task, row: Workload | str) -> Standing | None:
        """Return the standing with the times of the baseline: its run against itself, else the first that has any."""
        own, *others = (self.standing(task, row, name) for name in (self.baseline, *self.contenders))
        return next((standing for standing in (own, *others) if standing and standing.result("stream")), own)

    def best(self, task: Task, row: Workload) -> Standing | None:
        """Return the contender with the largest gain above 1, or None."""
        found = [s for contender in self.contenders if (s := self.standing(task, row, contender)) and s.gain > 1]
        return max(found, key=lambda standing: standing.gain, default=None)

    # Over many rows

    def geomean(self, task: Task, rows: Iterable[Workload], contender: str, metric: Metric) -> tuple[float, int] | None:
        standings = [self.standing(task, row, contender) for row in rows]
        logs = [math.log(result.ratio) for s in standings if s and (result := s.result(metric))]
        return (math.exp(sum(logs) / len(logs)), len(logs)) if logs else None

    def geomean_of_best(self, task: Task, rows: Iterable[Workload], metric: Metric) -> float | None:
        """Return the mean over rows of the best ratio of a metric. The baseline itself counts with a ratio of 1."""
        logs = []
        for row in rows:
            standings = (self.standing(task, row, contender) for contender in self.contenders)
            ratios = [result.ratio for s in standings if s and (result := s.result(metric))]
            if ratios:
                logs.append(math.log(max(1.0, *ratios)))
        return math.exp(sum(logs) / len(logs)) if logs else None

    def against_itself(self) -> tuple[int, int]:
        """Return the number of row verdicts of the baseline against itself, and of those that found a difference."""
        rows = [s.row for (_, _, name), found in self.standings.items() if name == self.baseline for s in found]
        return len(rows), sum(row.verdict in ("faster", "slower") for row in rows)

    def repeats(self) -> Repeats:
        """Return the device times of rows that were judged more than once."""
        found = Repeats()
        for (task, row, contender), standings in self.standings.items():
            times = [
                DeviceTime(result.candidate_us, gpu_of(run), _judge_of(run), str(run.provenance["finished"]))
                for standing in standings
                for run in [standing.run]
                if (result := standing.result("device"))
            ]
            found.add(contender, task, row, times)
        return found

    @property
    def _newest_judge(self) -> str:
        """The version of the judge in the newest verdict."""
        newest = max(self.runs(), key=lambda run: str(run.provenance["finished"]), default=None)
        return _judge_of(newest) if newest else ""

    def of_earlier_judges(self) -> dict[str, int]:
        """Return the number of rows per task that an earlier version of the judge judged."""
        newest = self._newest_judge
        rows = {(task, row) for (task, row, _), found in self.standings.items() if _judge_of(found[-1].run) != newest}
        return dict(Counter(task for task, _ in rows))

    def seconds_spent(self) -> dict[str, float]:
        """Return the seconds per part of the judgements. Pairs that were judged together count once."""
        latest = [found[-1].run for found in self.standings.values()]
        judgements = {
            (run.task, run.provenance["started"], run.provenance["finished"]): run.provenance.get("seconds", {})
            for run in latest
        }
        spent: dict[str, float] = {}
        for parts in judgements.values():
            for part, seconds in parts.items():
                spent[part] = spent.get(part, 0.0) + seconds
        return spent


def _is_of_a_folder(verdict: Verdict) -> bool:
    """Return whether a verdict is of a candidate's folder, which may have the name of a baseline."""
    return CANDIDATE_FILE in verdict.provenance.get("sources", {})


def _judge_of(run: Verdict) -> str:
    """Return the version of the judge of a verdict."""
    return str(run.provenance.get("judge"))
