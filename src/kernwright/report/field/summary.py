"""Summary of the field: how the published baselines stand in each family."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernwright.report.field.field import Field, Side, Standing
from kernwright.report.row_plot import Mean
from kernwright.tasks.policy import METRICS, Metric
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload


@dataclass(frozen=True)
class OwnStanding:
    """Our ops in one family: the mean ratio over the field's baseline, and the share of a copy."""

    mean: Mean
    share: float | None


@dataclass(frozen=True, kw_only=True)
class FieldSummary:
    """The figures of one family. Ratios are geometric means over the baseline, shares are medians over the rows."""

    task: Task
    judged: int
    wanted: int
    over: dict[str, Mean]  # by contender: the ratio of kernel times
    best: dict[Metric, float]  # ratio of the best contender of each row
    best_names: Counter[str]  # by contender, or the baseline itself: the rows on which it is the fastest
    best_share: float | None
    baseline_share: float | None
    untimed: dict[str, Counter[str]]  # by contender: rows without a time, by state

    @classmethod
    def of(cls, field: Field, task: Task) -> FieldSummary:
        rows = [row for row in field.wanted(task) if any(field.standing(task, row, name) for name in field.contenders)]
        timed = [row for row in rows if _fastest(field, task, row, "device")]
        means = {name: field.geomean(task, rows, name, _kernel_metric(field, task)) for name in field.contenders}
        best = [(row, field.best(task, row)) for row in timed]
        found = {metric: field.geomean_of_best(task, rows, metric) for metric in METRICS}
        shares = [share for row, own in best if (share := _share(field, task, row, own))]
        homes = [_share(field, task, row, None) for row in timed]
        baseline_shares = [share for share in homes if share]
        return cls(
            task=task,
            judged=len(rows),
            wanted=len(field.wanted(task)),
            over={name: Mean(*mean, len(rows)) for name, mean in means.items() if mean},
            best={metric: mean for metric, mean in found.items() if mean},
            best_names=Counter(own.run.candidate if own else field.baseline for _, own in best),
            best_share=statistics.median(shares) if shares else None,
            baseline_share=statistics.median(baseline_shares) if baseline_shares else None,
            untimed={name: own for name in field.contenders if (own := _untimed(field, task, rows, name))},
        )

    @property
    def best_text(self) -> str:
        """The fastest implementations, the most frequent first, each with the number of its rows."""
        return ", ".join(f"{name} ({count})" for name, count in self.best_names.most_common())

    @property
    def untimed_text(self) -> str:
        """The contenders that declined rows or failed, each with the number of rows."""
        states = sorted({state for own in self.untimed.values() for state in own})
        each = ((state, name, own[state]) for state in states for name, own in self.untimed.items() if own[state])
        return ", ".join(f"{name} {state} ({count})" for state, name, count in each)


def _kernel_metric(field: Field, task: Task) -> Metric:
    standings = (field.standing(task, row, name) for row in field.wanted(task) for name in field.contenders)
    return "device" if any(s and s.result("device") for s in standings) else "stream"


def _fastest(field: Field, task: Task, row: Workload, metric: Metric) -> bool:
    """Return whether any contender has a time on a row."""
    standings = (field.standing(task, row, name) for name in field.contenders)
    return any(s and (s.result(metric) or s.result("stream")) for s in standings)


def _share(field: Field, task: Task, row: Workload, best: Standing | None) -> float | None:
    """Return the share of a copy of the fastest implementation of a row; without a contender, of the baseline."""
    standing = best or field.home(task, row)
    side: Side = "candidate_us" if best else "baseline_us"
    metric: Metric = "device" if standing and standing.result("device") else "stream"
    return standing.share_of_copy(metric, side) if standing else None


def _untimed(field: Field, task: Task, rows: Sequence[Workload], name: str) -> Counter[str]:
    standings = [s for row in rows if (s := field.standing(task, row, name)) and s.result("stream") is None]
    return Counter(s.state for s in standings)
