"""The timing policy: inherited settings, and the error budget of all looks together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kernwright.tasks.policy import METRICS, TimingOverrides, TimingPolicy


def test_settings_that_a_task_leaves_out_are_inherited() -> None:
    resolved = TimingPolicy.resolved(TimingOverrides(block_ms=1.5, max_rounds=9))
    assert resolved == TimingPolicy(block_ms=1.5, max_rounds=9)
    assert TimingPolicy.resolved(TimingOverrides()) == TimingPolicy()
    assert set(TimingOverrides.model_fields) == set(TimingPolicy.model_fields)


@pytest.mark.parametrize(("first", "most", "looks"), [(2, 5, 4), (1, 1, 1), (5, 5, 1), (7, 5, 1)])
def test_all_looks_together_keep_the_error_budget(first: int, most: int, looks: int) -> None:
    policy = TimingPolicy(first_look=first, max_rounds=most, error_budget=0.04)
    assert policy.looks == looks
    assert (1 - policy.level) * looks == pytest.approx(0.04)


def test_the_deciding_metric_gets_the_most_quads() -> None:
    policy = TimingPolicy(decides="wall", quads_per_round=4)
    assert {metric: policy.quads_of(metric) for metric in METRICS} == {"wall": 4, "stream": 3, "device": 3}
    assert TimingPolicy(quads_per_round=1).quads_of("device") == 1


def test_quick_is_one_coarse_round_of_the_same_policy() -> None:
    policy = TimingPolicy(block_ms=9.0, threads=2)
    quick = policy.quick()
    assert (quick.max_rounds, quick.first_look) == (1, 1)
    assert quick.quads_per_round < policy.quads_per_round
    assert (quick.block_ms, quick.threads, quick.decides) == (9.0, 2, policy.decides)


@pytest.mark.parametrize(
    "bad",
    [
        {"block_ms": 0.0}, {"block_ms": -1.0}, {"quads_per_round": 0}, {"error_budget": 0.0}, {"error_budget": 1.0},
        {"band_floor": 2.0}, {"decides": "cpu"}, {"rounds": 3}, {"row_budget_s": 0.0}, {"threads": 0},
    ],
)  # fmt: skip
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TimingOverrides.model_validate(bad)
