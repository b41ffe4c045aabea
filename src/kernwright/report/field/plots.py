"""Plots of the field: one family's rows, every contender's mark on each. The page's table says why one has none."""

from __future__ import annotations

from kernwright.judge.record.verdict import MetricResult
from kernwright.report.field.field import Field, Side
from kernwright.report.row_plot import ratio_plot, share_plot
from kernwright.tasks.policy import Metric
from kernwright.tasks.task import Task


def plots_of(field: Field) -> dict[str, str]:
    """File names and contents: for each family that has a time, speedups and shares of a copy."""
    files = {}
    for task in field.families:
        rows = [row.id for row in field.wanted(task)]
        if any(_kernels(field, task, row, name) for row in rows for name in field.contenders):
            files[f"{task.name}_speedup.svg"] = speedup_plot(field, task)
            files[f"{task.name}_copy.svg"] = copy_plot(field, task)
    return files


def speedup_plot(field: Field, task: Task) -> str:
    """The baseline's time over each contender's, kernels alone where they can be timed so, with intervals."""

    def found(row: str, name: str) -> tuple[MetricResult, str] | None:
        result = _kernels(field, task, row, name)
        return (result, f"{result.ratio:.2f}x, {result.candidate_us:.1f} us") if result else None

    title = f"{task.name}: {field.baseline}'s time over each contender's"
    return ratio_plot([row.id for row in field.wanted(task)], field.contenders, found, title)


def copy_plot(field: Field, task: Task) -> str:
    """Shares of a copy of every contender, and of what they are compared with: it is the one that most people run."""

    def found(row: str, name: str) -> float | None:
        standing = field.home(task, row) if name == field.baseline else field.standing(task, row, name)
        side: Side = "baseline_us" if name == field.baseline else "candidate_us"
        metric: Metric = "device" if standing and standing.result("device") else "stream"
        return standing.share_of_copy(metric, side) if standing else None

    title = f"{task.name}: share of a copy of the same bytes"
    return share_plot([row.id for row in field.wanted(task)], [*field.contenders, field.baseline], found, title)


def _kernels(field: Field, task: Task, row: str, name: str) -> MetricResult | None:
    """Their time alone, where it can be had; else a run of calls."""
    standing = field.standing(task, row, name)
    return (standing.result("device") or standing.result("stream")) if standing else None
