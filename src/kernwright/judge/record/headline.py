"""Headline: the verdict over all rows, and its main reasons."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from kernwright.judge.record.decision import WORST_FIRST, level_of, noise_band, outcome_of
from kernwright.judge.record.statistics import Interval, geometric_mean
from kernwright.judge.record.verdict import GOOD, UNTIMED, Headline, MetricResult, Outcome, RowVerdict, Unavailable
from kernwright.judge.record.wall_check import shared_between_calls
from kernwright.tasks.policy import METRICS, Metric, TimingPolicy

Headlines = dict[Metric, Headline | Unavailable]
MAX_REASONS = 8


class RowIdentity(Protocol):
    """The part of a workload that a headline reads."""

    @property
    def id(self) -> str: ...

    @property
    def set(self) -> str: ...


class TimedRow(Protocol):
    """The state of one row that a headline is computed from."""

    @property
    def row(self) -> RowIdentity: ...

    @property
    def unavailable(self) -> Mapping[Metric, str]: ...

    def intervals(self, metric: Metric, level: float) -> tuple[Interval, Interval]:
        """Return the interval of the speedup and the interval of the noise."""
        ...


def headline_of(
    states: Sequence[TimedRow], rows: Sequence[RowVerdict], policy: TimingPolicy, quick: bool
) -> tuple[Headlines, Outcome | None]:
    """Return the equal-weight geometric mean of each metric, without grid rows, and the deciding metric's outcome."""
    pairs = [(row, state) for row, state in zip(rows, states, strict=True) if state.row.set != "grid"]
    headlines = {metric: _metric_headline(metric, pairs, policy) for metric in METRICS}
    if quick:
        return headlines, _commonest([row.verdict for row, _ in pairs])
    timed = [state for row, state in pairs if isinstance(row.metrics.get(policy.decides), MetricResult)]
    if not timed:
        return headlines, None
    ratio, band = _mean(policy.decides, timed, policy)
    outcome = outcome_of(ratio, band, policy)
    if outcome in GOOD and any(_doubted(row, policy) for row, _ in pairs):
        outcome = "inconclusive"  # a gain that was rejected on its row must not make the mean good
    return headlines, outcome


def _doubted(row: RowVerdict, policy: TimingPolicy) -> bool:
    """Return whether `wall` does not confirm the gain that the row adds to the mean."""
    result, wall = row.metrics.get(policy.decides), row.metrics.get("wall")
    if not isinstance(result, MetricResult):
        return False
    if result.outcome == "inconclusive":
        # No gain was claimed on this row, so it was not tested against `wall`. But the row still raises the mean.
        return isinstance(wall, MetricResult) and shared_between_calls(result, wall) is not None
    return result.outcome in GOOD and row.verdict != result.outcome


def _metric_headline(
    metric: Metric, pairs: Sequence[tuple[RowVerdict, TimedRow]], policy: TimingPolicy
) -> Headline | Unavailable:
    results = [(row.metrics.get(metric), state) for row, state in pairs]
    timed = [(result, state) for result, state in results if isinstance(result, MetricResult)]
    if not timed:
        reasons = {state.unavailable.get(metric, "no row was timed") for _, state in pairs}
        return Unavailable(unavailable="; ".join(sorted(reasons)))
    ratio, band = _mean(metric, [state for _, state in timed], policy)
    bounded = not math.isinf(ratio.high)
    worst, row_id = min((result.ratio, state.row.id) for result, state in timed)
    return Headline(
        geomean=math.exp(ratio.estimate),
        interval=(math.exp(ratio.low), math.exp(ratio.high)) if bounded else None,
        noise_band=math.expm1(band) if bounded else None,
        worst_row=row_id,
        worst_ratio=worst,
        rows=len(timed),
    )


def _mean(metric: Metric, states: Sequence[TimedRow], policy: TimingPolicy) -> tuple[Interval, float]:
    level = level_of(metric, policy)
    intervals = [state.intervals(metric, level) for state in states]
    overall = 1.0 - policy.error_budget
    ratio = geometric_mean([speedup for speedup, _ in intervals], level, overall)
    return ratio, noise_band(geometric_mean([noise for _, noise in intervals], level, overall), policy)


def _faults(rows: Sequence[RowVerdict], verdict: Outcome) -> dict[str, list[str]]:
    """Return the ids of the tampered, incorrect or failed rows that caused the verdict, grouped by reason."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict == verdict and verdict in WORST_FIRST:
            found.setdefault(row.reasons[0] if row.reasons else verdict, []).append(row.id)
    return found


def interrupted_at(finished: int, rows: int) -> str:
    """Return the first reason of an interrupted judgement."""
    if not finished:
        return "interrupted before any row was finished: no row counts"
    return f"interrupted: {finished} of {rows} rows were finished and count, the others are left out"


def _commonest(outcomes: Sequence[Outcome]) -> Outcome | None:
    counts = Counter(outcomes)
    return counts.most_common(1)[0][0] if counts else None


def reasons_of(rows: Sequence[RowVerdict], verdict: Outcome) -> list[str]:
    """Return the main reasons of the verdict, one line each."""
    lines: list[str] = []
    for reason, ids in _faults(rows, verdict).items():
        lines.append(f"{ids[0] if len(ids) == 1 else f'{len(ids)} rows'}: {reason}")
    without_kernel = [row.id for row in rows if row.ran and row.ran.fell_back]
    if without_kernel:
        some = ", ".join(without_kernel[:4])
        lines.append(f"the reference ran instead of a kernel on {len(without_kernel)} of {len(rows)} rows: {some}")
    slower = [row.id for row in rows if row.verdict == "slower"]
    if slower and verdict != "slower":
        lines.append(f"slower on {len(slower)} of {len(rows)} rows: {', '.join(slower[:4])}")
    if correct := sum(UNTIMED in row.reasons for row in rows):
        lines.append(f"correct on {correct} rows of the grid, which are not timed")
    undecided = [row.id for row in rows if row.verdict == "inconclusive" and UNTIMED not in row.reasons]
    if undecided:
        lines.append(f"undecided on {len(undecided)} of {len(rows)} rows: {', '.join(undecided[:4])}")
    return lines[:MAX_REASONS]
