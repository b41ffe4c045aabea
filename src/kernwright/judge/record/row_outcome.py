"""Row outcome: from the figures of one row to its outcome, with all reasons to doubt a gain."""

from __future__ import annotations

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
LEAST_RELEASES = 3  # quads that must show it


def row_outcome(row: RowSamples, metrics: Metrics, policy: TimingPolicy, least_us: float) -> tuple[Outcome, list[str]]:
    """Return the outcome of a timed row without a fault, and the reasons for it.

    ``least_us`` is the least time that the row's bytes can take.
    """
    deciding = metrics[policy.decides]
    if isinstance(deciding, Unavailable):
        return "inconclusive", [deciding.unavailable]
    if deciding.candidate_us < least_us:
        return "tampered", [
            f"{deciding.candidate_us:.3g} us is impossible: its bytes take {least_us:.3g} us at the very least"
        ]
    outcome = deciding.outcome
    counting = row.counting(policy.decides, policy.level)
    reasons: list[str] = []
    if busy := sum(sample.busy for sample in counting):
        reasons.append(f"{busy} of {deciding.quads} quads were taken on a busy machine")
    if outcome == "inconclusive":
        reasons.append("the interval neither clears the noise band nor lies inside the margin")
    if outcome in ("faster", "slower") and _too_close(deciding, policy):
        return "inconclusive", [*reasons, f"a difference under {policy.least_difference_us} us is the clock's own"]
    if outcome in GOOD and (doubt := _doubt(row, counting, metrics, deciding)):
        return "inconclusive", [*reasons, doubt]
    return outcome, reasons


def _doubt(row: RowSamples, counting: Sequence[Sample], metrics: Metrics, deciding: MetricResult) -> str | None:
    """Return the reason not to believe a good outcome, or None."""
    if hidden := paid_on_release(counting, deciding):
        return hidden
    wall = metrics.get("wall")
    if isinstance(wall, Unavailable) and row.quads("wall"):
        return f"no wall time to hold against it: {wall.unavailable}"
    if not isinstance(wall, MetricResult):
        return None
    if shared := shared_between_calls(deciding, wall):
        return shared
    if less_than_its_kernels(wall, metrics.get("device")):
        return "a call by itself seems to take less time than its kernels do"
    return f"{deciding.outcome} in a run of calls, slower when called by itself" if wall.outcome == "slower" else None


def _too_close(result: MetricResult, policy: TimingPolicy) -> bool:
    """Return whether the times differ by less than the clock's own variation, which counts on rows of a few us."""
    return abs(result.baseline_us - result.candidate_us) < policy.least_difference_us


def paid_on_release(quads: Sequence[Sample], deciding: MetricResult) -> str | None:
    """Return the reason not to believe a side that frees its outputs much more slowly than the baseline does."""
    known = [sample.released_ns for sample in quads]
    more = [
        mean(own["candidate"]) - mean(own["baseline"]) for own in known if own.get("candidate") and own.get("baseline")
    ]
    if len(more) < LEAST_RELEASES:
        return None
    longer_us = median(more) / 1e3
    gained = max(0.0, deciding.baseline_us - deciding.candidate_us)
    if longer_us <= max(GAIN_SHARE * gained, BASELINE_SHARE * deciding.baseline_us, RELEASE_US):
        return None
    return f"freeing outputs costs {longer_us:.0f} us more per call than the baseline's, outside the timed region"
