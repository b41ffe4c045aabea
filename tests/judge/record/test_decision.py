"""From intervals to outcomes."""

from __future__ import annotations

import math

import pytest

from kernwright.judge.record.decision import noise_band, outcome_of, overall
from kernwright.judge.record.statistics import Interval
from kernwright.tasks.policy import TimingPolicy

POLICY = TimingPolicy(band_floor=0.01, same_margin=0.03)
BAND = 0.02


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.021, 0.5, "faster"),
        (0.02, 0.5, "inconclusive"),  # the interval touches the band
        (-0.5, -0.021, "slower"),
        (-0.5, -0.02, "inconclusive"),
        (-0.02, 0.02, "same"),
        (math.log(1 / 1.03) + 1e-9, math.log(1.03) - 1e-9, "same"),
        (-0.04, 0.01, "inconclusive"),
        (-0.01, 0.04, "inconclusive"),
        (-0.5, 0.5, "inconclusive"),
        (-math.inf, math.inf, "inconclusive"),
        (0.021, 0.025, "faster"),  # inside the margin, but clear of the band
    ],
)
def test_outcomes(low: float, high: float, outcome: str) -> None:
    assert outcome_of(Interval((low + high) / 2 if math.isfinite(low) else 0.0, low, high), BAND, POLICY) == outcome


def test_the_band_is_the_baselines_distance_from_its_twin_and_at_least_the_floor() -> None:
    assert noise_band(Interval(0.0, -0.05, 0.02), POLICY) == 0.05
    assert noise_band(Interval(0.0, -0.02, 0.05), POLICY) == 0.05
    assert noise_band(Interval(0.0, -0.001, 0.001), POLICY) == math.log1p(0.01)
    assert noise_band(Interval(0.0, -math.inf, math.inf), POLICY) == math.inf


def test_a_bad_row_is_the_verdict_whatever_the_headline_says() -> None:
    assert overall(["faster", "failed", "faster"], "faster") == "failed"
    assert overall(["failed", "incorrect"], "faster") == "incorrect"
    assert overall(["incorrect", "tampered", "failed"], None) == "tampered"


def test_without_a_bad_row_the_headline_is_the_verdict() -> None:
    assert overall(["slower", "faster"], "faster") == "faster"
    assert overall(["faster", "faster"], "slower") == "slower"
    assert overall([], None) == "inconclusive"
