"""Plots of the field: all families in one plot, and the rows of each family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernwright.judge.record.verdict import MetricResult
from kernwright.report.field.field import Field, Side
from kernwright.report.field.summary import FieldSummary, OwnStanding
from kernwright.report.machines import model_of
from kernwright.report.row_plot import Mean, Words, mean_plot, ratio_plot, share_plot
from kernwright.tasks.candidate import SHIPPED
from kernwright.tasks.policy import Metric
from kernwright.tasks.task import Task

SUMMARY_PLOT = "summary.svg"


def plots_of(
    field: Field, summaries: Sequence[FieldSummary] = (), ours: Mapping[str, OwnStanding] | None = None
) -> dict[str, str]:
    """Return file names and contents: the summary and, for each family with a time, speedups and shares of a copy."""
    files = {}
    if any(own.over for own in summaries):
        files[SUMMARY_PLOT] = summary_plot(field, summaries, ours or {})
    for task in field.families:
        rows = [row.id for row in field.wanted(task)]
        if any(_kernels(field, task, row, name) for row in rows for name in field.contenders):
            files[f"{task.name}_speedup.svg"] = speedup_plot(field, task)
            files[f"{task.name}_copy.svg"] = copy_plot(field, task)
    return files


def summary_plot(field: Field, summaries: Sequence[FieldSummary], ours: Mapping[str, OwnStanding]) -> str:
    """Return the plot of all families: the mean speedup of each contender over the baseline, and ours if judged."""
    known = {own.task.name: own.over for own in summaries if own.over}
    models = " and ".join(sorted({model_of(run) for run in field.runs()}))

    def found(family: str, name: str) -> Mean | None:
        if name == SHIPPED:
            return ours[family].mean if family in ours else None
        return known[family].get(name)

    words = Words(
        f"Speedup of each implementation over {field.baseline}, {models}, geometric mean per family",
        f"{field.baseline} time / contender time (device, else stream), logarithmic; hollow: part of the rows",
    )
    return mean_plot(list(known), [*([SHIPPED] if ours else []), *field.contenders], found, words)


def speedup_plot(field: Field, task: Task) -> str:
    """Return the plot of one family: the baseline's time over each contender's, with intervals."""

    def found(row: str, name: str) -> tuple[MetricResult, str] | None:
        result = _kernels(field, task, row, name)
        return (result, f"{result.ratio:.2f}x, {result.candidate_us:.1f} us") if result else None

    words = Words(
        f"{task.name}: speedup of each contender over {field.baseline}",
        f"{field.baseline} time / contender time (device time, else stream) with interval, logarithmic",
    )
    return ratio_plot([row.id for row in field.wanted(task)], field.contenders, found, words)


def copy_plot(field: Field, task: Task) -> str:
    """Return the plot of one family: shares of a copy of every contender and of the baseline."""

    def found(row: str, name: str) -> float | None:
        standing = field.home(task, row) if name == field.baseline else field.standing(task, row, name)
        side: Side = "baseline_us" if name == field.baseline else "candidate_us"
        metric: Metric = "device" if standing and standing.result("device") else "stream"
        return standing.share_of_copy(metric, side) if standing else None

    words = Words(
        f"{task.name}: share of a copy's speed",
        "time of a copy of the same bytes / time of the call (device time, else stream)",
    )
    return share_plot([row.id for row in field.wanted(task)], [*field.contenders, field.baseline], found, words)


def _kernels(field: Field, task: Task, row: str, name: str) -> MetricResult | None:
    """Return the device result of a contender on a row, or its stream result."""
    standing = field.standing(task, row, name)
    return (standing.result("device") or standing.result("stream")) if standing else None
