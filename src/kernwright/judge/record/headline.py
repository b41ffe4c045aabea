"""Headline: the outcome of each metric over all rows, and the main reasons of the verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from kernwright.judge.record.decision import WORST_FIRST, noise_band, outcome_of
from kernwright.judge.record.row_outcome import is_too_close, metric_outcome
from kernwright.judge.record.sample import RowSamples
from kernwright.judge.record.statistics import Interval, geometric_mean
from kernwright.judge.record.verdict import (
    INTERPRETED,
    NOT_TIMED,
    UNDECIDED,
    UNTIMED,
    Headline,
    MetricResult,
    Outcome,
    RowVerdict,
    Unavailable,
)
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
    def timed(self) -> RowSamples: ...


@dataclass(frozen=True, kw_only=True)
class _Contribution:
    """One row's part of the mean of a metric."""

    id: str
    ratio: float
    outcome: Outcome  # after all checks of the row
    in_doubt: bool
    # The three differ only if the row is in doubt.
    measured: Interval
    shown: Interval  # without a gain that single calls rule out
    cautious: Interval  # without any gain that single calls do not confirm
    noise: Interval
    level: float


def headline_of(
    states: Sequence[TimedRow], rows: Sequence[RowVerdict], policy: TimingPolicy, quick: bool
) -> tuple[Headlines, Outcome | None]:
    """Return the headline of each metric, without grid rows, and the deciding metric's outcome."""
    pairs = [(row, state) for row, state in zip(rows, states, strict=True) if state.row.set != "grid"]
    headlines = {metric: _metric_headline(metric, pairs, policy, quick) for metric in METRICS}
    deciding = headlines[policy.decides]
    return headlines, deciding.outcome if isinstance(deciding, Headline) else None


def _metric_headline(
    metric: Metric, pairs: Sequence[tuple[RowVerdict, TimedRow]], policy: TimingPolicy, quick: bool
) -> Headline | Unavailable:
    found = [_contribution(metric, row, state, policy, quick) for row, state in pairs]
    timed = [part for part in found if part is not None]
    if not timed:
        reasons = {state.timed.unavailable.get(metric, "no row was timed") for _, state in pairs}
        return Unavailable(unavailable="; ".join(sorted(reasons)) or "no row is timed")
    mean = geometric_mean([part.shown for part in timed])
    # A quick run has too few quads to rule a gain out, and is no evidence: its mean is that of the ratios it shows.
    estimate = fmean(math.log(part.ratio) for part in timed) if quick else mean.estimate
    worst, row_id = min((part.ratio if quick else math.exp(part.shown.estimate), part.id) for part in timed)
    return Headline(
        geomean=math.exp(estimate),
        interval=None if quick else (math.exp(mean.low), math.exp(mean.high)),
        noise_band=None if quick else math.expm1(_band(timed, policy)),
        worst_row=row_id,
        worst_ratio=worst,
        rows=len(timed),
        outcome=_commonest([part.outcome for part in timed]) if quick else _outcome(timed, policy),
        level=None if quick else min(part.level for part in timed),
        undecided=tuple(part.id for part in timed if part.outcome == "inconclusive"),
        in_doubt=tuple(part.id for part in timed if part.in_doubt),
    )


def _outcome(timed: Sequence[_Contribution], policy: TimingPolicy) -> Outcome:
    """Return the outcome of the mean's interval.

    It must be the same whether rows in doubt count as measured or without their gain, and at least one row must not be
    in doubt. So a gain that was rejected on its row cannot make a mean `faster`, and the headline of a single row
    never contradicts the row.
    """
    band = _band(timed, policy)
    measured, cautious = (
        outcome_of(geometric_mean(intervals), band, policy)
        for intervals in ([part.measured for part in timed], [part.cautious for part in timed])
    )
    return "inconclusive" if measured != cautious or all(part.in_doubt for part in timed) else cautious


def _band(timed: Sequence[_Contribution], policy: TimingPolicy) -> float:
    return noise_band(geometric_mean([part.noise for part in timed]), policy)


def _contribution(
    metric: Metric, row: RowVerdict, state: TimedRow, policy: TimingPolicy, quick: bool
) -> _Contribution | None:
    """Return the row's part of the mean; None if the row does not have the metric."""
    result, wall = row.metrics.get(metric), row.metrics.get("wall")
    if not isinstance(result, MetricResult):
        return None
    single_calls = wall if isinstance(wall, MetricResult) and metric != "wall" else None
    measured, noise = state.timed.figures(metric, policy, quick)
    outcome, _ = metric_outcome(state.timed, row.metrics, metric, result, policy)
    in_doubt = outcome != result.outcome
    if result.outcome == "inconclusive" and single_calls is not None:
        # No gain was claimed on this row, so it was not tested against `wall`. But the row still raises the mean.
        in_doubt = shared_between_calls(result, single_calls) is not None
    if is_too_close(result, policy):
        # A difference below the variation of the clock counts as none in either direction.
        measured = Interval(0.0, min(0.0, measured.low), max(0.0, measured.high))
    return _Contribution(
        id=state.row.id,
        ratio=result.ratio,
        outcome=outcome,
        in_doubt=in_doubt,
        measured=measured,
        shown=_capped(measured, single_calls) if in_doubt else measured,
        cautious=_cautious(measured, single_calls) if in_doubt else measured,
        noise=noise,
        level=state.timed.level(metric, policy),
    )


def _capped(measured: Interval, single_calls: MetricResult | None) -> Interval:
    """Return a row's interval, with no larger gain than the upper end of its interval in single calls.

    A capped interval reaches down to the lower end in single calls, since nothing more is known of the gain.
    """
    low, high = map(math.log, single_calls.interval) if single_calls is not None else (0.0, 0.0)
    cap = max(0.0, high)
    return measured if measured.estimate <= cap else Interval(cap, min(cap, low, measured.low), cap)


def _cautious(measured: Interval, single_calls: MetricResult | None) -> Interval:
    """Return the lower of a row's interval, its interval in single calls, and no gain."""
    estimates, lows, highs = [0.0, measured.estimate], [measured.low], [0.0, measured.high]
    if single_calls is not None:
        estimates.append(math.log(single_calls.ratio))
        lows.append(math.log(single_calls.interval[0]))
        highs.append(math.log(single_calls.interval[1]))
    estimate = min(estimates)
    return Interval(estimate, min(estimate, *lows), max(estimate, min(highs)))


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


def reasons_of(
    rows: Sequence[RowVerdict],
    verdict: Outcome,
    deciding: Headline | Unavailable | None = None,
    metric: Metric = "stream",
) -> list[str]:
    """Return the main reasons of the verdict, one line each.

    Args:
        deciding: the headline of the deciding metric.
        metric: the deciding metric.
    """
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
    if correct := sum(INTERPRETED in row.reasons for row in rows):
        lines.append(f"{correct} of {len(rows)} rows: {INTERPRETED}")
    undecided = [row.id for row in rows if row.verdict == "inconclusive" and NOT_TIMED.isdisjoint(row.reasons)]
    if undecided:
        lines.append(f"{UNDECIDED} {len(undecided)} of {len(rows)} rows: {', '.join(undecided[:4])}")
    if isinstance(deciding, Headline) and deciding.outcome == "inconclusive":
        gains = [row.id for row in rows if row.id in deciding.in_doubt and _shows_gain(row.metrics.get(metric))]
        if gains:
            some = ", ".join(gains[:4])
            lines.append(f"gains not confirmed by single calls on {len(gains)} of {len(rows)} rows: {some}")
    return lines[:MAX_REASONS]


def _shows_gain(result: MetricResult | Unavailable | None) -> bool:
    """Return whether the estimate of a speedup is above the noise band. A row in doubt may also be a loss or noise."""
    return isinstance(result, MetricResult) and result.ratio > 1 + result.noise_band
