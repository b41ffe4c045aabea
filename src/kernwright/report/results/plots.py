"""Plots of the results: all families in one plot, and the rows of each family."""

from __future__ import annotations

from collections.abc import Sequence

from kernwright.judge.record.verdict import MetricResult
from kernwright.report.results.results import Results
from kernwright.report.results.summary import FamilySummary, kernel_metric
from kernwright.report.row_plot import Words, mean_plot, ratio_plot, share_plot
from kernwright.tasks.candidate import SHIPPED
from kernwright.tasks.policy import Metric
from kernwright.tasks.task import Task

SUMMARY_PLOT = "summary.svg"
MEANING: dict[Metric, str] = {
    "device": "kernels alone",
    "stream": "calls back to back",
    "wall": "one call and the wait until it has finished",
}


def plots_of(results: Results, summaries: Sequence[FamilySummary]) -> dict[str, str]:
    """Return file names and contents: the summary and, for each family with a time, ratios and shares of a copy."""
    files = {SUMMARY_PLOT: summary_plot(results, summaries)} if any(own.over for own in summaries) else {}
    for task in results.families:
        rows = [row.id for row in results.judged(task)]
        baselines = results.baselines_of(task)
        for kind, metric in (("speedup", kernel_metric(results, task)), ("wall", "wall")):
            if any(results.result(task, row, name, metric) for row in rows for name in baselines):
                files[f"{task.name}_{kind}.svg"] = _ratios(results, task, metric)
        if any(_share(results, task, row, SHIPPED) for row in rows):
            files[f"{task.name}_copy.svg"] = _shares(results, task)
    return files


def summary_plot(results: Results, summaries: Sequence[FamilySummary]) -> str:
    """Return the plot of all families: the mean kernel time of each baseline over ours."""
    known = {own.task.name: own.over for own in summaries if own.over}
    models = " and ".join(sorted({machine.partition(":")[0] for machine in results.machines}))
    metrics = " or ".join(sorted({MEANING[own.kernel_metric] for own in summaries}))
    words = Words(
        f"Speedup of kernwright.ops over each baseline, {models}, geometric mean per family",
        f"baseline time / kernwright time ({metrics}), logarithmic; hollow: part of the rows",
    )
    return mean_plot(list(known), results.baselines, lambda family, name: known[family].get(name), words)


def _ratios(results: Results, task: Task, metric: Metric) -> str:
    def found(row: str, name: str) -> tuple[MetricResult, str] | None:
        result = results.result(task, row, name, metric)
        if result is None:
            return None
        return result, f"{result.ratio:.2f}x, {result.baseline_us:.1f} us against our {result.candidate_us:.1f} us"

    words = Words(
        f"{task.name}: speedup over each baseline, {metric} time ({MEANING[metric]})",
        "baseline time / kernwright time with interval, logarithmic; right of 1x kernwright is faster",
    )
    return ratio_plot([row.id for row in results.judged(task)], results.baselines_of(task), found, words)


def _shares(results: Results, task: Task) -> str:
    def found(row: str, name: str) -> float | None:
        return _share(results, task, row, name)

    rows, names = [row.id for row in results.judged(task)], [SHIPPED, *results.baselines_of(task)]
    words = Words(
        f"{task.name}: share of a copy's speed, device time", "time of a copy of the same bytes / kernel time"
    )
    return share_plot(rows, names, found, words)


def _share(results: Results, task: Task, row: str, name: str) -> float | None:
    """Return the share of a baseline, or ours from the first run that has one."""
    for baseline in results.baselines_of(task) if name == SHIPPED else [name]:
        standing, result = results.standing(task, row, baseline), results.result(task, row, baseline, "device")
        if standing and result and standing.row.fastest_copy_us:
            return standing.row.fastest_copy_us / (result.candidate_us if name == SHIPPED else result.baseline_us)
    return None
