"""Recompute: derive the verdicts of a ledger again from their raw samples, and report what differs.

Derived are the figures of every metric of every row, the outcome of every timed row, the headline of every metric and
the overall outcome, with the same functions that the judge uses. Taken from the record are findings that are not in the
samples: a row that was incorrect, failed or tampered, and a metric that could not be measured.

A record keeps the headline of its schema. Headlines of schemas 1 and 2 are derived with the rule of that time, which
gave the mean an interval of 95 % and let one row in doubt make the whole mean inconclusive.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from pydantic import BaseModel, ValidationError

from kernwright.core.errors import LedgerError
from kernwright.judge.record.decision import WORST_FIRST, level_of, noise_band, outcome_of, overall
from kernwright.judge.record.headline import Headlines, headline_of
from kernwright.judge.record.round_record import recorded_samples
from kernwright.judge.record.row_outcome import row_outcome
from kernwright.judge.record.sample import TOO_FEW, RowSamples
from kernwright.judge.record.statistics import Interval
from kernwright.judge.record.verdict import (
    GOOD,
    UNTIMED,
    Headline,
    MetricResult,
    Outcome,
    RowVerdict,
    Unavailable,
    Verdict,
)
from kernwright.judge.record.wall_check import shared_between_calls
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.record import Record
from kernwright.tasks.policy import METRICS, Metric, TimingPolicy

HEADLINES_HAVE_OUTCOMES = 3  # schema
TOLERANCE = 1e-9  # relative; logarithms may differ in the last digits between machines


@dataclass(frozen=True)
class Difference:
    """One figure whose recorded value differs from the one derived from the samples."""

    record: str  # its run and number
    place: str
    recorded: object
    derived: object

    def __str__(self) -> str:
        return f"{self.record}: {self.place}: recorded {self.recorded}, derived {self.derived}"


@dataclass
class Recomputed:
    """The result over a whole ledger."""

    verdicts: int = 0
    rows: int = 0
    differences: list[Difference] = field(default_factory=list)
    underivable: dict[str, str] = field(default_factory=dict)  # the reason why a record cannot be derived, by record


@dataclass(frozen=True)
class _RowIdentity:
    id: str
    set: str


@dataclass(frozen=True)
class _Row:
    """One recorded row with its samples, as the headline reads it."""

    recorded: RowVerdict
    timed: RowSamples

    @property
    def row(self) -> _RowIdentity:
        return _RowIdentity(self.recorded.id, "grid" if UNTIMED in self.recorded.reasons else "")

    def derived(self, policy: TimingPolicy, quick: bool) -> RowVerdict:
        """Return the row's verdict as its samples give it."""
        if not self.timed.samples:
            return self.recorded
        metrics = {metric: self.timed.result(metric, policy, quick) for metric in METRICS}
        outcome = self.recorded.verdict
        if outcome not in WORST_FIRST:
            # Verdicts of schema 1 do not record the least possible time, only that a row was below it.
            outcome, _ = row_outcome(self.timed, metrics, policy, self.recorded.least_us or 0.0)
        return self.recorded.model_copy(update={"metrics": metrics, "verdict": outcome})


def recompute(ledger: Ledger) -> Recomputed:
    """Derive every verdict of the ledger again."""
    found = Recomputed()
    for run in ledger.runs():
        records = ledger.records(run)
        for record in records:
            if record.kind == "verdict":
                _recompute_verdict(ledger, records, record, found)
    return found


def _recompute_verdict(ledger: Ledger, records: Sequence[Record], record: Record, found: Recomputed) -> None:
    found.verdicts += 1
    name = f"run {record.run}, record {record.seq}"
    try:
        verdict = Verdict.model_validate(record.body)
        policy = TimingPolicy.model_validate(verdict.provenance["policy"])
        samples = recorded_samples(ledger, records, verdict)
    except (ValidationError, KeyError, TypeError, ValueError, LedgerError) as error:
        found.underivable[name] = f"{type(error).__name__}: {error}"
        return
    rows = [_Row(row, RowSamples(samples.get(row.id, []), _not_measured(row))) for row in verdict.rows]
    if lacking := [row.recorded.id for row in rows if not row.timed.samples and _has_times(row.recorded)]:
        found.underivable[name] = f"{len(lacking)} timed rows have no samples, {lacking[0]} first"
        return
    found.rows += sum(bool(row.timed.samples) for row in rows)
    derived = [row.derived(policy, verdict.quick) for row in rows]
    rule = headline_of if verdict.schema_version >= HEADLINES_HAVE_OUTCOMES else _earlier_headlines
    headline, outcome = rule(rows, derived, policy, verdict.quick)
    whole = verdict.model_copy(
        update={"rows": tuple(derived), "headline": headline, "verdict": overall([r.verdict for r in derived], outcome)}
    )
    found.differences += _differences(name, verdict, whole)


def _earlier_headlines(
    rows: Sequence[_Row], derived: Sequence[RowVerdict], policy: TimingPolicy, quick: bool
) -> tuple[Headlines, Outcome | None]:
    """Return the headlines of schemas 1 and 2, and the deciding metric's outcome."""
    pairs = [(row, own) for row, own in zip(derived, rows, strict=True) if own.row.set != "grid"]
    headlines: Headlines = {}
    outcome: Outcome | None = None
    for metric in METRICS:
        timed = [(result, own) for row, own in pairs if isinstance(result := row.metrics.get(metric), MetricResult)]
        if not timed:
            headlines[metric] = Unavailable(unavailable="no row was timed")
            continue
        level = level_of(metric, policy)
        intervals = [own.timed.intervals(metric, level) for _, own in timed]
        ratio, noise = (_earlier_mean(list(part), level, policy) for part in zip(*intervals, strict=True))
        band, bounded = noise_band(noise, policy), not math.isinf(ratio.high)
        worst, row_id = min((result.ratio, own.recorded.id) for result, own in timed)
        headlines[metric] = Headline(
            geomean=math.exp(ratio.estimate),
            interval=(math.exp(ratio.low), math.exp(ratio.high)) if bounded else None,
            noise_band=math.expm1(band) if bounded else None,
            worst_row=row_id,
            worst_ratio=worst,
            rows=len(timed),
        )
        if metric == policy.decides:
            outcome = outcome_of(ratio, band, policy)
    if quick:
        counts = Counter(row.verdict for row, _ in pairs)
        return headlines, counts.most_common(1)[0][0] if counts else None
    if outcome in GOOD and any(_made_the_mean_doubtful(row, policy) for row, _ in pairs):
        outcome = "inconclusive"
    return headlines, outcome


def _earlier_mean(rows: Sequence[Interval], row_level: float, policy: TimingPolicy) -> Interval:
    estimate = sum(row.estimate for row in rows) / len(rows)
    quantiles = [NormalDist().inv_cdf(0.5 + level / 2) for level in (1.0 - policy.error_budget, row_level)]
    half_width = math.hypot(*((row.high - row.low) / 2 for row in rows)) / len(rows) * quantiles[0] / quantiles[1]
    return Interval(estimate, estimate - half_width, estimate + half_width)


def _made_the_mean_doubtful(row: RowVerdict, policy: TimingPolicy) -> bool:
    result, wall = row.metrics.get(policy.decides), row.metrics.get("wall")
    if not isinstance(result, MetricResult):
        return False
    if result.outcome == "inconclusive":
        return isinstance(wall, MetricResult) and shared_between_calls(result, wall) is not None
    return result.outcome in GOOD and row.verdict != result.outcome


def _not_measured(row: RowVerdict) -> dict[Metric, str]:
    """Return the metrics that the record says could not be measured. Too few quads are derived instead."""
    metrics = row.metrics.items()
    return {
        m: r.unavailable for m, r in metrics if isinstance(r, Unavailable) and not r.unavailable.startswith(TOO_FEW)
    }


def _has_times(row: RowVerdict) -> bool:
    return any(isinstance(result, MetricResult) for result in row.metrics.values())


def _differences(name: str, recorded: Verdict, derived: Verdict) -> Iterator[Difference]:
    yield from _compared(name, "verdict", recorded.verdict, derived.verdict)
    for metric in METRICS:
        yield from _compared(name, f"headline.{metric}", recorded.headline.get(metric), derived.headline.get(metric))
    for before, after in zip(recorded.rows, derived.rows, strict=True):
        yield from _compared(name, f"{before.id}.verdict", before.verdict, after.verdict)
        for metric in METRICS:
            yield from _compared(name, f"{before.id}.{metric}", before.metrics.get(metric), after.metrics.get(metric))


def _compared(name: str, place: str, recorded: Any, derived: Any) -> Iterator[Difference]:
    if isinstance(recorded, Unavailable) and isinstance(derived, Unavailable):
        return  # The wording of the reason is not a figure.
    if isinstance(recorded, BaseModel) and type(recorded) is type(derived):
        for own in type(recorded).model_fields:
            yield from _compared(name, f"{place}.{own}", getattr(recorded, own), getattr(derived, own))
    elif isinstance(recorded, tuple) and isinstance(derived, tuple) and len(recorded) == len(derived):
        for number, (before, after) in enumerate(zip(recorded, derived, strict=True)):
            yield from _compared(name, f"{place}[{number}]", before, after)
    elif not _equal(recorded, derived):
        yield Difference(name, place, recorded, derived)


def _equal(recorded: object, derived: object) -> bool:
    if isinstance(recorded, float) and isinstance(derived, float):
        return math.isclose(recorded, derived, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return recorded == derived
