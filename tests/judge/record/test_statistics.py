"""The intervals behind verdicts, against twins that enumerate and simulate."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernwright.judge.record.statistics import Interval, geometric_mean, least_quads, signed_rank_interval, spread

finite = st.floats(-2, 2, allow_nan=False)


def naive_cut(n: int, alpha: float) -> int:
    """Return the largest k with P(T <= k - 1) <= alpha / 2, by trying all 2^n assignments of signs to the ranks
    1..n."""
    statistic = [sum(r for r, s in zip(range(1, n + 1), signs, strict=True) if s) for signs in _signs(n)]
    k = 0
    while 2 * sum(t <= k for t in statistic) <= alpha * len(statistic):
        k += 1
    return k


def _signs(n: int) -> list[tuple[int, ...]]:
    return list(itertools.product((0, 1), repeat=n))


def naive_interval(values: list[float], level: float) -> Interval:
    pairs = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    cut = naive_cut(len(values), 1 - level)
    low, high = (pairs[cut - 1], pairs[-cut]) if cut else (-math.inf, math.inf)
    return Interval(statistics.median(pairs), low, high)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.9875, 0.99])
@pytest.mark.parametrize("n", range(1, 11))
def test_the_interval_equals_that_of_a_naive_twin(n: int, level: float) -> None:
    values = np.random.default_rng(n).normal(0.1, 0.3, n).tolist()
    ours, twin = signed_rank_interval(values, level), naive_interval(values, level)
    assert ours.estimate == pytest.approx(twin.estimate, abs=1e-15)
    assert (ours.low, ours.high) == pytest.approx((twin.low, twin.high), abs=1e-15)


@pytest.mark.parametrize(
    ("n", "level", "bounded"), [(5, 0.95, False), (6, 0.95, True), (7, 0.9875, False), (8, 0.9875, True)]
)
def test_too_few_quads_leave_the_interval_open(n: int, level: float, bounded: bool) -> None:
    """Two-sided, n signs alike have a chance of 2 / 2^n: 6 quads for 95 %, 8 for 98.75 %."""
    interval = signed_rank_interval([0.1 * i for i in range(n)], level)
    assert math.isfinite(interval.low) == math.isfinite(interval.high) == bounded
    assert math.isfinite(interval.estimate)


def test_no_quads_at_all() -> None:
    assert signed_rank_interval([], 0.95) == Interval(0.0, -math.inf, math.inf)


@pytest.mark.parametrize(("n", "level"), [(8, 0.95), (12, 0.9875), (20, 0.95), (6, 0.9)])
def test_the_interval_covers_the_truth_under_heavy_tails(n: int, level: float) -> None:
    """Student's t with 2 degrees of freedom has no variance, like the times of a busy machine."""
    generator = np.random.default_rng(17)
    runs, truth = 3000, 0.2
    intervals = (signed_rank_interval(truth + 0.05 * generator.standard_t(2, n), level) for _ in range(runs))
    covered = sum(i.low <= truth <= i.high for i in intervals) / runs
    slack = 3 * math.sqrt(level * (1 - level) / runs)
    assert covered >= level - slack


def test_the_interval_is_no_wider_than_necessary() -> None:
    """An interval that always covers would pass the test above and decide nothing."""
    generator = np.random.default_rng(18)
    runs = 2000
    intervals = (signed_rank_interval(generator.standard_t(2, 20), 0.8) for _ in range(runs))
    covered = sum(i.low <= 0 <= i.high for i in intervals) / runs
    assert covered <= 0.85


@given(st.lists(finite, min_size=1, max_size=12), finite)
def test_shifting_the_quads_shifts_everything(values: list[float], shift: float) -> None:
    one, two = signed_rank_interval(values, 0.9), signed_rank_interval([v + shift for v in values], 0.9)
    assert two.estimate == pytest.approx(one.estimate + shift, abs=1e-9)
    if math.isfinite(one.low):
        assert (two.low, two.high) == pytest.approx((one.low + shift, one.high + shift), abs=1e-9)


@given(st.lists(finite, min_size=1, max_size=12))
def test_swapping_the_sides_mirrors_the_interval(values: list[float]) -> None:
    one, two = signed_rank_interval(values, 0.9), signed_rank_interval([-v for v in values], 0.9)
    assert (two.estimate, two.low, two.high) == pytest.approx((-one.estimate, -one.high, -one.low), abs=1e-12)


@given(st.lists(finite, min_size=6, max_size=12), st.randoms())
def test_order_does_not_count_and_the_estimate_lies_inside(values: list[float], rng: object) -> None:
    interval = signed_rank_interval(values, 0.9)
    assert interval.low <= interval.estimate <= interval.high
    shuffled = list(values)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert signed_rank_interval(shuffled, 0.9) == interval


def test_one_stolen_time_slice_moves_little() -> None:
    quads = [0.1, 0.11, 0.09, 0.1, 0.12, 0.08, 0.1, 0.1]
    assert signed_rank_interval([*quads, 50.0], 0.9).estimate < 0.12


def test_reach_and_inside() -> None:
    interval = Interval(0.1, -0.3, 0.2)
    assert interval.max_distance == 0.3
    assert interval.inside(0.3)
    assert not interval.inside(0.29)
    assert not Interval(0.0, -0.1, 0.3).inside(0.29)


def test_geometric_mean_of_ratios() -> None:
    ratios = [1.2, 0.9, 2.0]
    rows = [Interval(math.log(r), math.log(r) - 0.01, math.log(r) + 0.01) for r in ratios]
    assert math.exp(geometric_mean(rows).estimate) == pytest.approx((1.2 * 0.9 * 2.0) ** (1 / 3))


def test_the_interval_of_a_mean_is_that_of_independent_normal_errors() -> None:
    """The mean of rows whose intervals are +-z sigma has an error of sigma / sqrt(rows). Checked by simulation."""
    z = 2.575829304  # two-sided 99 %
    sigmas = [0.02, 0.05, 0.01, 0.03]
    rows = [Interval(0.0, -z * s, z * s) for s in sigmas]
    mean = geometric_mean(rows)
    drawn = np.random.default_rng(3).normal(0, sigmas, (20000, 4)).mean(axis=1)
    assert mean.high == pytest.approx(z * drawn.std(), rel=0.03)
    assert mean.low == pytest.approx(-mean.high)


def test_the_mean_of_one_row_is_the_row() -> None:
    row = Interval(0.02, 0.011, 0.05)
    assert geometric_mean([row]) == row


def test_one_open_row_leaves_the_mean_open() -> None:
    mean = geometric_mean([Interval(0.2, 0.1, 0.3), Interval(0.4, -math.inf, math.inf)])
    assert mean.estimate == pytest.approx(0.3)
    assert (mean.low, mean.high) == (-math.inf, math.inf)
    assert geometric_mean([]) == Interval(0.0, -math.inf, math.inf)


def test_many_quads_neither_overflow_nor_lose_the_tail() -> None:
    values = np.random.default_rng(0).normal(0, 1, 200)
    interval = signed_rank_interval(values, 0.95)
    assert -0.3 < interval.low < interval.estimate < interval.high < 0.3


def test_a_few_hiccups_do_not_count_as_spread() -> None:
    even = [100.0 + step for step in (-2, -1, 0, 1, 2)]
    assert spread([*even, 900.0]) < 4 and spread([7.0]) == 0.0
    drawn = random.Random(1)
    assert spread([drawn.gauss(50, 3) for _ in range(2000)]) == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.9875, 0.99, 0.999])
def test_the_least_quads_have_an_interval_and_one_fewer_has_none(level: float) -> None:
    least = least_quads(level)
    assert math.isfinite(signed_rank_interval(range(least), level).high)
    assert math.isinf(signed_rank_interval(range(least - 1), level).high)
