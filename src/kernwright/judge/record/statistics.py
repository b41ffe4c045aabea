"""Statistics: one place for every interval that a verdict rests on.

The unit is a quad: blocks of each side in mirrored order, so that a drift of the machine that is linear in time
cancels. A quad's log ratio is symmetric about the true one when nothing but noise differs, whatever the noise's shape;
the Hodges-Lehmann estimate and the signed-rank interval ask for no more, and one stolen time slice moves them little.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, on the log scale."""

    estimate: float
    low: float
    high: float

    @property
    def reach(self) -> float:
        """The farthest that the interval lies from no difference at all."""
        return max(abs(self.low), abs(self.high))

    def inside(self, margin: float) -> bool:
        return -margin <= self.low and self.high <= margin


def signed_rank_interval(log_ratios: Sequence[float], level: float) -> Interval:
    """Hodges-Lehmann estimate and exact signed-rank interval; unbounded where there are too few quads for the level."""
    values = np.asarray(log_ratios, dtype=np.float64)
    if values.size == 0:
        return Interval(0.0, -math.inf, math.inf)
    first, second = np.triu_indices(values.size)
    walsh = np.sort((values[first] + values[second]) / 2)
    estimate = float(np.median(walsh))
    cut = _critical_rank(values.size, 1.0 - level)
    if cut == 0:
        return Interval(estimate, -math.inf, math.inf)
    return Interval(estimate, float(walsh[cut - 1]), float(walsh[-cut]))


def least_quads(level: float) -> int:
    """So many have an interval of this level; fewer have none, whatever they say."""
    return math.ceil(math.log2(2 / (1 - level)) - 1e-9)


@cache
def _critical_rank(quads: int, alpha: float) -> int:
    """Largest k with 2 P(T <= k - 1) <= alpha for the signed-rank statistic T; 0 where even k = 1 is too many."""
    total = quads * (quads + 1) // 2
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for rank in range(1, quads + 1):
        ways[rank:] = ways[rank:] + ways[:-rank].copy()
    tail = np.cumsum(ways) / 2.0**quads
    return int(np.searchsorted(2.0 * tail, alpha, side="right"))


def spread(values: Sequence[float]) -> float:
    """The median distance from the median, as a standard deviation: a few hiccups do not count."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def geometric_mean(rows: Sequence[Interval], row_level: float, level: float = 0.95) -> Interval:
    """Equal-weight mean of the rows' log ratios; its interval adds up theirs as independent errors."""
    if not rows:
        return Interval(0.0, -math.inf, math.inf)
    estimate = sum(row.estimate for row in rows) / len(rows)
    if any(math.isinf(row.low) or math.isinf(row.high) for row in rows):
        return Interval(estimate, -math.inf, math.inf)
    width = float(ndtri(0.5 + row_level / 2))
    variance = sum(((row.high - row.low) / (2 * width)) ** 2 for row in rows) / len(rows) ** 2
    reach = float(ndtri(0.5 + level / 2)) * math.sqrt(variance)
    return Interval(estimate, estimate - reach, estimate + reach)
