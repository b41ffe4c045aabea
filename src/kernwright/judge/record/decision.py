"""Decision: the outcome of a row or a judgement, from intervals and noise bands."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernwright.judge.record.statistics import Interval
from kernwright.judge.record.verdict import Outcome
from kernwright.tasks.policy import LEAST_QUADS, Metric, TimingPolicy

WORST_FIRST: tuple[Outcome, ...] = ("tampered", "incorrect", "failed")


def noise_band(noise: Interval, policy: TimingPolicy) -> float:
    """Return the noise band on the log scale, at least the policy's floor.

    `noise` is the interval of the baseline against its twin, measured under the same protocol.
    """
    return max(noise.max_distance, math.log1p(policy.band_floor))


def outcome_of(ratio: Interval, band: float, policy: TimingPolicy) -> Outcome:
    """Return faster or slower if the whole interval is outside the noise band, same if it is inside the margin."""
    if ratio.low > band:
        return "faster"
    if ratio.high < -band:
        return "slower"
    if ratio.inside(math.log1p(policy.same_margin)):
        return "same"
    return "inconclusive"


def overall(rows: Sequence[Outcome], headline: Outcome | None) -> Outcome:
    """Return the verdict: the worst of tampered, incorrect and failed rows; without such rows, the headline."""
    for outcome in WORST_FIRST:
        if outcome in rows:
            return outcome
    return headline or "inconclusive"


def level_of(metric: Metric, policy: TimingPolicy, waited: bool = False) -> float:
    """Return the confidence level of a metric's interval.

    The deciding metric is tested after several rounds, so the error budget is split between these looks. The other
    metrics are tested once, at the end. Only `wall` may be tested again, where a row waited for more of it (`waited`).
    The first look at `wall` takes the smallest error that its few quads allow, and the later looks share the rest of
    the budget.
    """
    if metric == policy.decides:
        return policy.level
    if metric != "wall":
        return 1.0 - policy.error_budget
    first: float = min(policy.error_budget, 2.0 / 2**LEAST_QUADS)
    remaining = max(policy.error_budget - first, policy.error_budget / policy.looks / 2)
    return 1.0 - (remaining / max(1, policy.looks - 1) if waited else first)
