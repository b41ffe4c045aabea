"""Stop rules on histories with known outcomes."""

from __future__ import annotations

import math

import pytest
from made_history import baseline, history_of, iteration, profile, reread, started

from kernwright.campaign.loop.stop_rules import avoided_directions, refusals
from kernwright.campaign.settings import Budget
from kernwright.campaign.state.standing import bandwidth_limit, standing_of, target_of, usage_of

IN_VAIN = [iteration(1, 1.0, direction="loads"), iteration(2, None, direction="Block Size"), iteration(3, 0.9)]


def rules(*records: object, limits: Budget | None = None, direction: str | None = None) -> list[str]:
    return [each.rule for each in refusals(history_of(*records), limits, direction)]  # type: ignore[arg-type]


def test_two_iterations_in_vain_are_allowed() -> None:
    assert rules(started(), *IN_VAIN[:2], direction="loads") == []


def test_after_three_in_vain_a_profile_a_reading_and_a_new_direction_are_needed() -> None:
    assert rules(started(), *IN_VAIN) == ["profile", "reread"]
    assert rules(started(), *IN_VAIN, profile(3)) == ["reread"]
    assert rules(started(), *IN_VAIN, reread(3)) == ["profile"]
    assert rules(started(), *IN_VAIN, profile(3), reread(3)) == []
    assert rules(started(), *IN_VAIN, profile(3), reread(3), direction="unrolling") == []
    for written in ("loads", " LOADS", "block-size", "block_size"):
        assert rules(started(), *IN_VAIN, profile(3), reread(3), direction=written) == ["direction"]


def test_a_profile_and_a_reading_from_before_do_not_count() -> None:
    assert rules(started(), IN_VAIN[0], IN_VAIN[1], profile(2), reread(2), IN_VAIN[2]) == ["profile", "reread"]
    again = [*IN_VAIN, profile(3), reread(3), iteration(4, 1.0, direction="unrolling")]
    assert rules(started(), *again) == ["profile", "reread"], "the fourth in vain asks for both again"


def test_an_improvement_ends_the_streak() -> None:
    assert rules(started(), *IN_VAIN[:2], iteration(3, 1.5, improved=True), iteration(4, 1.5), direction="loads") == []
    assert avoided_directions(history_of(started(), *IN_VAIN)) == ("loads", "block-size")
    assert avoided_directions(history_of(started(), *IN_VAIN[:2])) == ()


def test_the_starting_version_is_no_idea() -> None:
    first = iteration(1, 1.0, agent="start", direction="start")
    assert rules(started(Budget(iterations=3)), first, iteration(2, 1.0), iteration(3, 1.0)) == []


@pytest.mark.parametrize(
    ("budget", "rule"),
    [(Budget(iterations=2), "iterations"), (Budget(minutes=2.0), "minutes"), (Budget(cost_usd=3.0), "cost")],
)
def test_a_used_budget_ends_the_campaign(budget: Budget, rule: str) -> None:
    done = [iteration(1, 1.0, cost=1.0), iteration(2, 1.5, improved=True, cost=2.0)]  # of 30 s + 30 s each
    assert rules(started(budget), *done) == [rule]
    assert rules(started(), *done, limits=budget) == [rule]
    assert rules(started(budget), done[0]) == []
    assert usage_of(history_of(started(), *done)).cost_usd == 3.0


def test_the_target_is_reached_by_a_version_and_not_by_a_failed_idea() -> None:
    assert rules(started(target=2.0), iteration(1, 2.1, improved=True)) == ["target"]
    assert rules(started(target=2.0), iteration(1, 2.1)) == []
    assert rules(started(), baseline((10.0, 5.0, 1.0)), iteration(1, 2.1, improved=True)) == ["target"]
    assert rules(started(), baseline((10.0, 4.0, 1.0)), iteration(1, 2.1, improved=True)) == []


def test_the_bandwidth_limit_is_the_mean_over_the_rows() -> None:
    assert bandwidth_limit(baseline((10.0, 5.0, 1.0), (8.0, None, 1.0))) == pytest.approx(math.sqrt(2 * 8))
    assert bandwidth_limit(baseline((10.0, 5.0, 1.0), (8.0, None, None))) is None, "a row without a limit"
    assert target_of(history_of(started(target=3.0), baseline((10.0, 5.0, 1.0)))) == 3.0


def test_the_best_version_is_the_last_that_improved() -> None:
    done = history_of(started(), iteration(1, 1.5, improved=True), iteration(2, 3.0), iteration(3, 1.8, improved=True))
    assert (standing_of(done).iteration, standing_of(done).ratio) == (3, 1.8)
    assert standing_of(done, before=3).iteration == 1
    assert standing_of(done, before=1).ratio == 1.0


def test_a_starting_version_that_was_judged_is_what_ideas_are_compared_with() -> None:
    first = iteration(1, 0.6, agent="start", verdict="slower")
    assert standing_of(history_of(started(), first)).ratio == 0.6
    undecided = iteration(1, 0.6, agent="start", verdict="inconclusive")
    assert standing_of(history_of(started(), undecided)).ratio == 1.0
