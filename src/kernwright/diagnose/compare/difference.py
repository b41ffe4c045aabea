"""RunDifference: the relative difference of a figure between two sides, with its confidence interval.

All estimates are made on the logarithms of the figures, so that a difference is a ratio and has no preferred side.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernwright.diagnose.compare.label_runs import LabelRuns
from kernwright.diagnose.compare.measure import Measure
from kernwright.diagnose.perf_dump.dump import PerfDump

LEVEL = 0.95
LEAST_MEMORY = 0.01  # relative; allocators reserve whole blocks, so that a smaller difference means nothing
Method = Literal["turns", "runs", "steps"]
Outcome = Literal["better", "worse", "same", "undecided"]


@dataclass(frozen=True, kw_only=True)
class RunDifference:
    """The ratio of two figures minus 1: 0.1 means that the new side is 10 % larger.

    `low` and `high` bound it, and are None without an interval. `method` says where the interval comes from: runs that
    took turns, repeated runs, or the steps of one run on each side. `copied` is True if all runs of a side have exactly
    the same time: it was measured once, so that there is neither an interval nor a verdict.
    """

    change: float
    low: float | None = None
    high: float | None = None
    method: Method | None = None
    outcome: Outcome = "undecided"
    copied: bool = False


def difference(measure: Measure, base: LabelRuns, new: LabelRuns) -> RunDifference | None:
    """Return the difference between two sides; None if a side lacks the measure or has a figure of 0."""
    sides = [measure.values(base.dumps), measure.values(new.dumps)]
    if not all(sides) or not all(value > 0 for values in sides for value in values):
        return None
    if any(is_copied(measure, values) for values in sides):
        return RunDifference(change=_change(*sides), copied=True)
    paired = _by_turns(measure, base, new)
    if len(paired) > 1:
        return _of_interval(measure, _of_pairs(paired), "turns")
    if max(map(len, sides)) > 1:
        return _of_interval(measure, _of_groups(*sides), "runs")
    if measure.kind == "step":
        paired = _by_steps(base.dumps[0], new.dumps[0])
        if len(paired) > 1:
            return _of_interval(measure, _of_pairs(paired), "steps")
    return RunDifference(change=_change(*sides))


def is_copied(measure: Measure, values: Sequence[float]) -> bool:
    """Return whether the values of a side are copies of one measurement.

    A time that is measured once in a process, as that of loading, is in the dumps of all repeats. Measured twice, a
    time differs. Memory does not: a program that repeats its allocations reaches the same peak.
    """
    return measure.unit == "ms" and len(values) > 1 and len(set(values)) == 1


def _change(base: Sequence[float], new: Sequence[float]) -> float:
    return statistics.geometric_mean(new) / statistics.geometric_mean(base) - 1


def _by_turns(measure: Measure, base: LabelRuns, new: LabelRuns) -> list[float]:
    """Return the log ratio of each pair of runs that took turns."""
    before, after = base.by_turn(), new.by_turn()
    pairs = [(measure.read(before[turn]), measure.read(after[turn])) for turn in before if turn in after]
    return [math.log(right / left) for left, right in pairs if left and right]


def _by_steps(base: PerfDump, new: PerfDump) -> list[float]:
    """Return the log ratio of each step that both runs have."""
    before, after = ({step.step: step.duration_ms for step in dump.denoise_steps_ms} for dump in (base, new))
    return [math.log(after[at] / before[at]) for at in before if before[at] > 0 and after.get(at, 0) > 0]


Bounds = tuple[float, float, float]  # estimate and the ends of its interval, as log ratios


def _of_pairs(log_ratios: Sequence[float]) -> Bounds:
    """Return the signed-rank interval. If there are too few pairs for it, return Student's."""
    from kernwright.judge.record.statistics import least_quads, signed_rank_interval

    if len(log_ratios) >= least_quads(LEVEL):
        found = signed_rank_interval(log_ratios, LEVEL)
        return found.estimate, found.low, found.high
    middle = statistics.fmean(log_ratios)
    error = math.sqrt(statistics.variance(log_ratios) / len(log_ratios))
    return _around(middle, error, len(log_ratios) - 1)


def _of_groups(base: Sequence[float], new: Sequence[float]) -> Bounds:
    """Return Welch's interval. A side with a single run is taken to vary as much as the other one."""
    logs = [[math.log(value) for value in values] for values in (base, new)]
    spreads = [statistics.variance(values) if len(values) > 1 else None for values in logs]
    known = [spread for spread in spreads if spread is not None]
    shares = [(known[0] if own is None else own) / len(values) for own, values in zip(spreads, logs, strict=True)]
    change = statistics.fmean(logs[1]) - statistics.fmean(logs[0])
    if len(known) == 1:
        return _around(change, math.sqrt(sum(shares)), max(map(len, logs)) - 1)
    parts = sum(share**2 / (len(values) - 1) for share, values in zip(shares, logs, strict=True))
    degrees = sum(shares) ** 2 / parts if parts else len(logs[0]) + len(logs[1]) - 2
    return _around(change, math.sqrt(sum(shares)), degrees)


def _around(middle: float, error: float, degrees: float) -> Bounds:
    reach = student_quantile(degrees) * error
    return middle, middle - reach, middle + reach


def student_quantile(degrees: float, level: float = LEVEL) -> float:
    """Return t with P(-t < T < t) = level for Student's T.

    With T = sqrt(degrees) * tan(u), the density of u is proportional to cos(u) ** (degrees - 1), which is integrated on
    a grid. It needs at least 1 degree of freedom.
    """
    import numpy as np

    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.maximum(np.cos(angles), 0.0) ** (max(degrees, 1.0) - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.sqrt(max(degrees, 1.0)) * math.tan(float(np.interp(level * below[-1], below, angles)))


def _of_interval(measure: Measure, bounds: Bounds, method: Method) -> RunDifference:
    change, low, high = (math.expm1(value) for value in bounds)
    outcome: Outcome = "worse" if low > 0 else "better" if high < 0 else "same"
    if measure.kind == "memory" and abs(change) < LEAST_MEMORY:
        outcome = "same"
    return RunDifference(change=change, low=low, high=high, method=method, outcome=outcome)


def noise_of(measure: Measure, sides: Sequence[LabelRuns]) -> float | None:
    """Return the relative spread between repeated runs of a side, the largest of all sides; None without repeats."""
    from kernwright.judge.record.statistics import spread

    repeats = [values for side in sides if len(values := measure.values(side.dumps)) > 1]
    found = [values for values in repeats if not is_copied(measure, values)]
    return max((spread(values) / middle for values in found if (middle := statistics.median(values))), default=None)
