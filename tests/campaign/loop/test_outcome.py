"""Conclusions from a verdict: improvement, prediction, advice."""

from __future__ import annotations

import pytest

from kernwright.campaign.loop.outcome import Figures, improves, judged_prediction, next_step
from kernwright.campaign.record import Idea
from kernwright.campaign.state.standing import StandingVersion
from kernwright.judge.record.verdict import Outcome


def figures(
    ratio: float | None, low: float = 0.0, high: float = 0.0, band: float = 0.02, verdict: Outcome = "faster"
) -> Figures:
    interval = (low, high) if ratio is not None else None
    return Figures(
        run="run", verdict=verdict, ratio=ratio, interval=interval, noise_band=band, rows=(), reasons=("a reason",)
    )


START, BEST = StandingVersion(None, None, 1.0), StandingVersion(3, "c", 1.5)


def test_a_gain_counts_if_the_noise_cannot_explain_it() -> None:
    assert improves(figures(1.5, 1.4, 1.6), START)
    assert not improves(figures(1.5, 1.4, 1.6), BEST), "no gain over the best version"
    assert improves(figures(1.8, 1.7, 1.9), BEST)
    assert not improves(figures(1.51, 1.505, 1.52), BEST), "a gain below the noise band"
    assert not improves(figures(1.7, 1.49, 1.9), BEST), "the interval has the best version's ratio"


@pytest.mark.parametrize("verdict", ["inconclusive", "incorrect", "tampered", "failed"])
def test_only_decided_and_correct_verdicts_are_gains(verdict: Outcome) -> None:
    assert not improves(figures(2.0, 1.9, 2.1, verdict=verdict), START)


def test_a_version_may_be_better_than_a_slow_start_and_slower_than_the_baseline() -> None:
    assert improves(figures(0.9, 0.85, 0.95, verdict="slower"), StandingVersion(1, "c", 0.6))


def test_a_verdict_without_times_is_no_gain() -> None:
    assert not improves(figures(None), START)


@pytest.mark.parametrize(
    ("predicted", "low", "high", "prediction"),
    [
        (1.2, 1.15, 1.3, "confirmed"),
        (1.2, 1.4, 1.5, "confirmed"),  # a larger gain than predicted
        (1.2, 1.05, 1.1, "refuted"),  # a smaller one
        (1.2, 0.9, 1.3, "undecided"),  # both the prediction and no effect are possible
        (1.2, 0.9, 0.95, "refuted"),
        (1.0, 0.99, 1.01, "confirmed"),
        (1.0, 1.2, 1.3, "refuted"),
        (0.8, 0.7, 0.85, "confirmed"),
        (0.8, 0.9, 1.1, "refuted"),
        (0.8, 0.7, 1.1, "undecided"),
        (None, 1.2, 1.3, "undecided"),
    ],
)
def test_predictions_are_compared_with_the_interval(
    predicted: float | None, low: float, high: float, prediction: str
) -> None:
    idea = Idea(hypothesis="h", direction="d", predicted_ratio=predicted)
    measured = figures((low * high) ** 0.5 * 1.5, low * 1.5, high * 1.5)
    assert judged_prediction(idea, measured, BEST) == prediction


def test_a_wrong_result_refutes_a_predicted_gain() -> None:
    idea = Idea(hypothesis="h", direction="d", predicted_ratio=1.2)
    assert judged_prediction(idea, figures(None, verdict="incorrect"), START) == "refuted"
    assert judged_prediction(idea, None, START) == "refuted"
    assert judged_prediction(None, figures(2.0, 1.9, 2.1), START) == "undecided"


def test_the_advice_names_the_fault_or_the_distance_to_the_limit() -> None:
    assert "a reason" in next_step(figures(None, verdict="incorrect"), False, 2.0, 1.0)
    assert "1.25x" in next_step(figures(1.6, 1.5, 1.7), True, 2.0, 1.6)
    assert "another direction" in next_step(figures(1.0, 0.9, 1.1), False, None, 1.6)
