"""Plots of the results: one family's rows, against every baseline."""

from __future__ import annotations

from kernwright.judge.record.verdict import MetricResult
from kernwright.report.results.results import Results
from kernwright.report.row_plot import ratio_plot, share_plot
from kernwright.tasks.candidate import SHIPPED
from kernwright.tasks.policy import Metric
from kernwright.tasks.task import Task


def plots_of(results: Results) -> dict[str, str]:
    """File names and contents: for each family that has a time, ratios of kernels and of whole calls, and shares."""
    files = {}
    for task in results.families:
        rows = [row.id for row in results.judged(task)]
        baselines = results.baselines_of(task)
        for kind, metric in (("speedup", kernel_metric(results, task)), ("wall", "wall")):
            if any(results.result(task, row, name, metric) for row in rows for name in baselines):
                files[f"{task.name}_{kind}.svg"] = _ratios(results, task, metric)
        if any(_share(results, task, row, SHIPPED) for row in rows):
            files[f"{task.name}_copy.svg"] = _shares(results, task)
    return files


def kernel_metric(results: Results, task: Task) -> Metric:
    """Kernels alone, where any row has them; else a run of calls."""
    names = results.baselines_of(task)
    timed = (results.result(task, row, name, "device") for row in results.judged(task) for name in names)
    return "device" if any(timed) else "stream"


def _ratios(results: Results, task: Task, metric: Metric) -> str:
    def found(row: str, name: str) -> tuple[MetricResult, str] | None:
        result = results.result(task, row, name, metric)
        if result is None:
            return None
        return result, f"{result.ratio:.2f}x, {result.baseline_us:.1f} us and ours {result.candidate_us:.1f} us"

    rows = [row.id for row in results.judged(task)]
    return ratio_plot(rows, results.baselines_of(task), found, f"{task.name}: each baseline's {metric} time over ours")


def _shares(results: Results, task: Task) -> str:
    def found(row: str, name: str) -> float | None:
        return _share(results, task, row, name)

    rows, names = [row.id for row in results.judged(task)], [SHIPPED, *results.baselines_of(task)]
    return share_plot(rows, names, found, f"{task.name}: share of a copy of the same bytes")


def _share(results: Results, task: Task, row: str, name: str) -> float | None:
    """A baseline's own, or ours in the first run that has one."""
    for baseline in results.baselines_of(task) if name == SHIPPED else [name]:
        standing, result = results.standing(task, row, baseline), results.result(task, row, baseline, "device")
        if standing and result and standing.row.fastest_copy_us:
            return standing.row.fastest_copy_us / (result.candidate_us if name == SHIPPED else result.baseline_us)
    return None
