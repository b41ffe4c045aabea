"""Statistics: the estimates and intervals that verdicts are based on.

The unit is a quad: blocks of each side in mirrored order, so that drift that is linear in time cancels. The log ratio
of a quad is distributed symmetrically about the true one, whatever the shape of the noise. The Hodges-Lehmann estimate
and the signed-rank interval need no other assumption and are robust against single outliers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, on the log scale."""

    estimate: float
    low: float
    high: float

    @property
    def max_distance(self) -> float:
        """The largest distance of a point of the interval from 0, which is no difference."""
        return max(abs(self.low), abs(self.high))

    def inside(self, margin: float) -> bool:
        return -margin <= self.low and self.high <= margin


def signed_rank_interval(log_ratios: Sequence[float], level: float) -> Interval:
    """Return Hodges-Lehmann estimate and exact signed-rank interval; unbounded if there are too few quads."""
    values = np.asarray(log_ratios, dtype=np.float64)
    if values.size == 0:
        return Interval(0.0, -math.inf, math.inf)
    first, second = _pairs(values.size)
    walsh = np.sort((values[first] + values[second]) / 2)
    estimate = float(walsh[(walsh.size - 1) // 2] + walsh[walsh.size // 2]) / 2  # the median of sorted values
    cut = _critical_rank(values.size, 1.0 - level)
    if cut == 0:
        return Interval(estimate, -math.inf, math.inf)
    return Interval(estimate, float(walsh[cut - 1]), float(walsh[-cut]))


def least_quads(level: float) -> int:
    """Return the least number of quads that have a bounded interval at this level."""
    return math.ceil(math.log2(2 / (1 - level)) - 1e-9)


@lru_cache(maxsize=64)  # many intervals have the same few numbers of quads
def _pairs(quads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of all pairs of quads, each quad with itself included."""
    return np.triu_indices(quads)


@cache
def _critical_rank(quads: int, alpha: float) -> int:
    """Return the largest k with 2 P(T <= k - 1) <= alpha for the signed-rank statistic T; 0 if there is none."""
    total = quads * (quads + 1) // 2
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for rank in range(1, quads + 1):
        ways[rank:] = ways[rank:] + ways[:-rank].copy()
    tail = np.cumsum(ways) / 2.0**quads
    return int(np.searchsorted(2.0 * tail, alpha, side="right"))


def spread(values: Sequence[float]) -> float:
    """Return the median absolute deviation, scaled to a standard deviation, which is robust against outliers."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def geometric_mean(rows: Sequence[Interval]) -> Interval:
    """Return the equal-weight mean of the rows' log ratios, with an interval of the rows' confidence level.

    The distances of the rows' interval ends from their estimates add up in quadrature, which is right for independent
    errors. The mean of one row is this row.
    """
    if not rows:
        return Interval(0.0, -math.inf, math.inf)
    if len(rows) == 1:
        return rows[0]
    estimate = sum(row.estimate for row in rows) / len(rows)
    if any(math.isinf(row.low) or math.isinf(row.high) for row in rows):
        return Interval(estimate, -math.inf, math.inf)
    below = math.hypot(*(row.estimate - row.low for row in rows)) / len(rows)
    above = math.hypot(*(row.high - row.estimate for row in rows)) / len(rows)
    return Interval(estimate, estimate - below, estimate + above)
