"""Summary: how the ops that ship stand in each family, against each baseline and against the best peer of each row."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass

from kernwright.report.field.field import Standing
from kernwright.report.results.results import Results, geomean
from kernwright.report.row_plot import Mean
from kernwright.tasks.policy import METRICS, Metric
from kernwright.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class FamilySummary:
    """The figures of one family. Ratios are geometric means, shares are medians over the rows."""

    task: Task
    judged: int
    wanted: int
    kernel_metric: Metric  # device, or stream where no row has a device time
    over: dict[str, Mean]  # by baseline: the ratio of kernel times
    over_best: dict[Metric, float]  # against the best peer of each row
    best_peers: Counter[str]  # by baseline: the rows on which it is the best peer by kernel time
    own_share: float | None
    peer_share: float | None  # share of the best peers
    losing: int  # rows with a kernel time whose whole interval lies below 1
    older: int  # records that were made before the last change of the sources or the baseline

    @classmethod
    def of(cls, results: Results, task: Task) -> FamilySummary:
        rows, metric = results.judged(task), kernel_metric(results, task)
        best = [(row, peer) for row in rows if (peer := results.best_peer(task, row, metric))]
        means = {name: mean_over(results, task, name, metric) for name in results.baselines_of(task)}
        over_best = {
            own: geomean(p[1].ratio for row in rows if (p := results.best_peer(task, row, own))) for own in METRICS
        }
        peers = [results.standing(task, row, name) for row, (name, _) in best]
        shares = [share for s in peers if s and (share := s.share_of_copy(metric, "baseline_us"))]
        own_shares = [share for s in peers if s and (share := s.share_of_copy(metric))]
        standings = [s for row in rows for s in results.of_row(task, row).values()]
        return cls(
            task=task,
            judged=len(rows),
            wanted=len(results.wanted(task)),
            kernel_metric=metric,
            over={name: mean for name, mean in means.items() if mean},
            over_best={own: mean[0] for own, mean in over_best.items() if mean},
            best_peers=Counter(name for _, (name, _) in best),
            own_share=statistics.median(own_shares) if own_shares else None,
            peer_share=statistics.median(shares) if shares else None,
            losing=sum(any(_loses(s, metric) for s in results.of_row(task, row).values()) for row in rows),
            older=sum(not results.is_current(standing) for standing in standings),
        )

    @property
    def best_peers_text(self) -> str:
        """The best peers, the most frequent first, each with the number of its rows."""
        return ", ".join(f"{name} ({count})" for name, count in self.best_peers.most_common())


def summaries_of(results: Results) -> list[FamilySummary]:
    """Return the summary of every family."""
    return [FamilySummary.of(results, task) for task in results.families]


def kernel_metric(results: Results, task: Task) -> Metric:
    """Return `device` if any row has a device time, else `stream`."""
    names = results.baselines_of(task)
    timed = (results.result(task, row, name, "device") for row in results.judged(task) for name in names)
    return "device" if any(timed) else "stream"


def mean_over(results: Results, task: Task, baseline: str, metric: Metric) -> Mean | None:
    """Return the geometric mean over a family of a baseline's time over ours."""
    rows = results.judged(task)
    found = (results.result(task, row, baseline, metric) for row in rows)
    mean = geomean(result.ratio for result in found if result)
    return Mean(*mean, len(rows)) if mean else None


def _loses(standing: Standing, metric: Metric) -> bool:
    result = standing.result(metric)
    return result is not None and result.interval[1] < 1
