"""Decision: from intervals and noise bands to outcomes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernwright.judge.record.statistics import Interval
from kernwright.judge.record.verdict import Outcome
from kernwright.tasks.policy import LEAST_QUADS, Metric, TimingPolicy

WORST_FIRST: tuple[Outcome, ...] = ("tampered", "incorrect", "failed")


def noise_band(against_itself: Interval, policy: TimingPolicy) -> float:
    """How far the baseline lies from itself under the same protocol: the far end of that interval, or the floor."""
    return max(against_itself.reach, math.log1p(policy.band_floor))


def outcome_of(ratio: Interval, band: float, policy: TimingPolicy) -> Outcome:
    """Faster or slower only when the whole interval clears the noise band; same only when it lies inside the margin."""
    if ratio.low > band:
        return "faster"
    if ratio.high < -band:
        return "slower"
    if ratio.inside(math.log1p(policy.same_margin)):
        return "same"
    return "inconclusive"


def overall(rows: Sequence[Outcome], headline: Outcome | None) -> Outcome:
    """Any row that is tampered, incorrect or failed is the verdict; otherwise the headline is."""
    for outcome in WORST_FIRST:
        if outcome in rows:
            return outcome
    return headline or "inconclusive"


def level_of(metric: Metric, policy: TimingPolicy, waited: bool = False) -> float:
    """The deciding metric is looked at several times and pays for each look; the others once, at the end.

    But where a row waits for `wall`, that is looked at again: what its first look leaves of the budget, which is as
    fine as its few quads allow, is spent on those.
    """
    if metric == policy.decides:
        return policy.level
    if metric != "wall":
        return 1.0 - policy.error_budget
    first: float = min(policy.error_budget, 2.0 / 2**LEAST_QUADS)
    left = max(policy.error_budget - first, policy.error_budget / policy.looks / 2)
    return 1.0 - (left / max(1, policy.looks - 1) if waited else first)
