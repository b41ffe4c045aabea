"""Row outcome: the outcome of one row from its figures, with the checks that may reject a gain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, median

from kernwright.judge.record.sample import RowSamples, Sample
from kernwright.judge.record.verdict import GOOD, MetricResult, Outcome, Unavailable
from kernwright.judge.record.wall_check import less_than_its_kernels, shared_between_calls
from kernwright.tasks.policy import Metric, TimingPolicy

Metrics = Mapping[Metric, MetricResult | Unavailable]
GAIN_SHARE = 0.5  # share of a gain that freeing outputs may cost
BASELINE_SHARE = 0.05  # share of the baseline's time that freeing outputs may cost in any case
RELEASE_US = 3.0  # microseconds per call that freeing outputs may cost in any case
CALLS: dict[Metric, str] = {"stream": "back-to-back calls", "device": "a loop without Python"}
UNCLEAR = "the interval neither clears the noise band nor lies inside the margin"
MIN_RELEASES = 3  # quads with release times that are needed to reject a gain


def row_outcome(row: RowSamples, metrics: Metrics, policy: TimingPolicy, least_us: float) -> tuple[Outcome, list[str]]:
    """Return the outcome of a timed row without a fault in its deciding metric, and the reasons for it.

    ``least_us`` is the least time that the row's bytes can take.
    """
    deciding = metrics[policy.decides]
    if isinstance(deciding, Unavailable):
        return "inconclusive", [deciding.unavailable]
    if deciding.candidate_us < least_us:
        return "tampered", [
            f"{deciding.candidate_us:.3g} us per call is impossible: moving its bytes takes at least {least_us:.3g} us"
        ]
    return metric_outcome(row, metrics, policy.decides, deciding, policy)


def metric_outcome(
    row: RowSamples, metrics: Metrics, metric: Metric, result: MetricResult, policy: TimingPolicy
) -> tuple[Outcome, list[str]]:
    """Return the outcome of one metric of a row after all checks, and the reasons for it."""
    counting = row.counting(metric, row.level(metric, policy))
    reasons: list[str] = []
    if busy := sum(sample.busy for sample in counting):
        reasons.append(f"{busy} of {result.quads} quads were taken on a busy machine")
    if result.outcome == "inconclusive":
        inside = abs(math.log(result.ratio)) <= math.log1p(result.noise_band)
        reasons.append(f"{'within the noise: ' if inside else ''}{UNCLEAR}")
    if is_too_close(result, policy):
        limit = policy.least_difference_us
        return "inconclusive", [*reasons, f"the times differ by less than {limit} us, the variation of the clock"]
    if result.outcome in GOOD and (doubt := _doubt(row, counting, metrics, metric, result)):
        return "inconclusive", [*reasons, doubt]
    return result.outcome, reasons


def _doubt(
    row: RowSamples, counting: Sequence[Sample], metrics: Metrics, metric: Metric, result: MetricResult
) -> str | None:
    """Return the reason not to believe a good outcome, or None."""
    if slow_release := paid_on_release(counting, result):
        return slow_release
    wall = metrics.get("wall")
    if isinstance(wall, Unavailable) and row.quads("wall"):
        return f"no wall time to confirm it: {wall.unavailable}"
    if not isinstance(wall, MetricResult):
        return None
    if metric != "wall" and (shared := shared_between_calls(result, wall, CALLS[metric])):
        return shared
    if less_than_its_kernels(wall, metrics.get("device")):
        return "a single call appears to take less time than its kernels"
    if metric != "wall" and wall.outcome == "slower":
        return f"{result.outcome} in {CALLS[metric]}, slower in single calls"
    return None


def is_too_close(result: MetricResult, policy: TimingPolicy) -> bool:
    """Return whether a claimed difference is below the variation of the clock, which matters on rows of a few us."""
    claimed = result.outcome in ("faster", "slower")
    return claimed and abs(result.baseline_us - result.candidate_us) < policy.least_difference_us


def paid_on_release(quads: Sequence[Sample], deciding: MetricResult) -> str | None:
    """Return the reason not to believe a side that frees its outputs much more slowly than the baseline does."""
    released = [sample.released_ns for sample in quads]
    differences = [
        mean(times["candidate"]) - mean(times["baseline"])
        for times in released
        if times.get("candidate") and times.get("baseline")
    ]
    if len(differences) < MIN_RELEASES:
        return None
    longer_us = median(differences) / 1e3
    gained = max(0.0, deciding.baseline_us - deciding.candidate_us)
    if longer_us <= max(GAIN_SHARE * gained, BASELINE_SHARE * deciding.baseline_us, RELEASE_US):
        return None
    return f"freeing outputs costs {longer_us:.0f} us more per call than the baseline's, outside the timed region"
