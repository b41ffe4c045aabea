"""Headlines and rows follow one error budget, and no headline contradicts its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernwright.judge.record.decision import overall
from kernwright.judge.record.headline import headline_of, reasons_of
from kernwright.judge.record.sample import Sample
from kernwright.judge.record.verdict import Headline, MetricResult, Outcome, RowVerdict, Unavailable
from kernwright.judge.rounds.row_state import RowState
from kernwright.tasks.policy import Metric, TimingPolicy
from kernwright.tasks.workload import Workload

POLICY = TimingPolicy()
DIFFERENT = ("faster", "slower")
Noise = Callable[[np.random.Generator, int], Any]


class NoLimit:
    """A device on which every time is possible."""

    def fastest_seconds(self, *_: Any) -> float:
        return 0.0


def row_named(name: str) -> Workload:
    tensor = {"shape": [64, 64], "dtype": "fp32"}
    row = {"id": name, "set": "production", "op": "axpy", "inputs": {"x": tensor}, "outputs": {"y": tensor}}
    return Workload.model_validate(row | {"bytes_min": 2 * 64 * 64 * 4})


def sample(metric: Metric, number: int, baseline: float, twin: float, candidate: float) -> Sample:
    times: dict[Any, tuple[float, float]] = {
        "baseline": (baseline, baseline), "again": (twin, twin), "candidate": (candidate, candidate),
    }  # fmt: skip
    return Sample(metric=metric, round=number, order=list(times), redone=0, busy=False, ns_per_call=times)


def concluded(
    states: list[RowState], policy: TimingPolicy = POLICY
) -> tuple[list[RowVerdict], dict[Metric, Headline], Outcome]:
    device: Any = NoLimit()
    rows = [state.verdict(policy, device, False) for state in states]
    headlines, outcome = headline_of(states, rows, policy, quick=False)
    known = {metric: found for metric, found in headlines.items() if isinstance(found, Headline)}
    return rows, known, overall([row.verdict for row in rows], outcome)


def judged_against_itself(rng: np.random.Generator, count: int, spread: float, noise: Noise) -> list[RowState]:
    """Run the sequential test on equal sides, with all looks and stops, on simulated quads of 100 us."""
    states = [RowState(row=row_named(f"r{number}")) for number in range(count)]
    for number in range(POLICY.max_rounds):
        for state in (state for state in states if state.pending):
            metrics: Iterable[Metric] = ("wall" if state.awaits_wall else "stream",)
            for metric in metrics if number >= POLICY.first_look else ("stream", "wall"):
                for _ in range(POLICY.quads_of(metric)):
                    state.samples.append(sample(metric, number, *(1e5 * np.exp(spread * noise(rng, 3)))))
            if number + 1 >= POLICY.first_look:
                state.look(POLICY)
    return states


def normal(rng: np.random.Generator, size: int) -> Any:
    return rng.normal(0, 1, size)


def with_outliers(rng: np.random.Generator, size: int) -> Any:
    return rng.normal(0, 1, size) * np.where(rng.random(size) < 0.05, 8, 1)


@pytest.mark.parametrize(("noise", "count", "runs"), [(normal, 1, 100), (with_outliers, 5, 20), (normal, 31, 3)])
def test_equal_sides_differ_no_more_often_than_the_budget_allows(noise: Noise, count: int, runs: int) -> None:
    """In all of a verdict: its outcome, the outcome of each metric and of each row. Intervals miss as rarely."""
    rng = np.random.default_rng(11)
    wrong = missed = total = 0
    for spread in (0.003, 0.03):
        for _ in range(runs):
            rows, headlines, verdict = concluded(judged_against_itself(rng, count, spread, noise))
            outcomes = [verdict, *(h.outcome for h in headlines.values()), *(row.verdict for row in rows)]
            wrong += any(outcome in DIFFERENT for outcome in outcomes)
            low, high = headlines["stream"].interval or (math.nan, math.nan)
            missed += not low <= 1 <= high
            total += 1
    budget = POLICY.error_budget * total
    assert wrong <= budget
    assert missed <= budget + 2 * math.sqrt(budget)


@settings(max_examples=150, deadline=None)
@given(
    stream=st.floats(-1.2, 1.2), wall=st.floats(-1.2, 1.2), spread=st.sampled_from([0.001, 0.01, 0.05]),
    us=st.sampled_from([1.0, 5.0, 100.0]), quads=st.integers(4, 20), release_us=st.sampled_from([0.0, 40.0]),
    decides=st.sampled_from(["stream", "wall"]), seed=st.integers(0, 9),
)  # fmt: skip
def test_a_verdict_on_one_row_is_that_of_the_row(
    stream: float, wall: float, spread: float, us: float, quads: int, release_us: float, decides: Metric, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    state = RowState(row=row_named("r"))
    for metric, gain in (("stream", stream), ("wall", wall)):
        for _ in range(quads):
            base, twin, own = 1e3 * us * np.exp(spread * rng.normal(0, 1, 3))
            state.samples.append(sample(metric, 0, base, twin, own * math.exp(-gain)))  # type: ignore[arg-type]
            state.samples[-1].released_ns = {"baseline": (0.0,), "candidate": (1e3 * release_us,)}
    rows, _, verdict = concluded([state], POLICY.model_copy(update={"decides": decides}))
    assert verdict == rows[0].verdict


def timed(name: str, stream: float, wall: float, spread: float = 0.002) -> RowState:
    """Return a row with these speedups and small deviations of both signs."""
    state = RowState(row=row_named(name))
    for metric, gain in (("stream", stream), ("wall", wall)):
        for number in range(12):
            ripple = 1 + spread * math.sin(number)
            state.samples.append(sample(metric, 0, 1e5, 1e5 * ripple, 1e5 / gain * ripple))  # type: ignore[arg-type]
    return state


def test_one_row_in_doubt_leaves_the_other_thirty_decided() -> None:
    states = [timed(f"r{n}", 2.1, 2.1) for n in range(30)] + [timed("doubted", 2.1, 1.0)]
    rows, headlines, verdict = concluded(states)
    found = headlines["stream"]
    assert verdict == found.outcome == "faster" and rows[-1].verdict == "inconclusive"
    assert found.undecided == found.in_doubt == ("doubted",)
    assert 2.0 < found.geomean < 2.1, "it counts with no more than single calls have"
    assert any("doubted" in reason for reason in reasons_of(rows, verdict, found))


@pytest.mark.parametrize("quick", [False, True])
def test_only_a_speedup_above_the_noise_band_is_called_a_gain_in_doubt(quick: bool) -> None:
    """Single calls confirm none of the rows. One is a gain, one a loss and one noise."""
    states = [timed("gain", 3.0, 0.9), timed("loss", 0.68, 0.4, spread=0.6), timed("noise", 1.05, 0.6, spread=0.2)]
    device: Any = NoLimit()
    rows = [state.verdict(POLICY, device, quick) for state in states]
    found = headline_of(states, rows, POLICY, quick)[0]["stream"]
    assert isinstance(found, Headline) and set(found.in_doubt) == {"gain", "loss", "noise"}
    (said,) = (r for r in reasons_of(rows, "inconclusive", found) if "gains" in r)
    assert said.endswith(": gain"), "the others are undecided for a reason of their own"
    assert all(any("within the noise" in reason for reason in row.reasons) for row in rows[1:])


def test_a_gain_that_single_calls_refute_adds_nothing_to_the_mean() -> None:
    _, headlines, verdict = concluded([*(timed(f"r{n}", 1.1, 1.1) for n in range(9)), timed("shared", 1e4, 1.0)])
    assert verdict == "faster" and headlines["stream"].geomean < 1.1
    _, _, verdict = concluded([timed("honest", 0.98, 0.98), *(timed(f"r{n}", 50.0, 1.0) for n in range(9))])
    assert verdict == "inconclusive"


@pytest.mark.parametrize("wall", [0.9, 1.3])
def test_a_headline_over_one_row_in_doubt_is_possible(wall: float) -> None:
    """The mean is no better than its worst row, and its interval reaches down to that of single calls."""
    rows, headlines, _ = concluded([timed("r", 27.0, wall)])
    found, single_calls = headlines["stream"], rows[0].metrics["wall"]
    assert found.in_doubt and found.interval is not None and isinstance(single_calls, MetricResult)
    assert found.worst_ratio == pytest.approx(found.geomean)
    assert found.interval[0] == pytest.approx(single_calls.interval[0])
    assert found.interval[0] < found.geomean <= found.interval[1] * (1 + 1e-9)


def test_without_a_timed_row_there_is_a_reason() -> None:
    headlines, _ = headline_of([], [], POLICY, quick=False)
    assert all(isinstance(found, Unavailable) and found.unavailable for found in headlines.values())


def test_each_metric_has_an_outcome() -> None:
    """A kernel that gains 40 us in back-to-back calls and in single calls, and one that loses in single calls."""
    _, headlines, _ = concluded([timed("a", 1.6, 1.6), timed("b", 1.6, 1.6)])
    assert {metric: found.outcome for metric, found in headlines.items()} == {"stream": "faster", "wall": "faster"}
    _, headlines, verdict = concluded([timed("a", 1.6, 0.5), timed("b", 1.6, 0.5)])
    assert (headlines["stream"].outcome, headlines["wall"].outcome) == ("inconclusive", "slower")
    assert verdict == "inconclusive"
    assert concluded([timed("a", 1.6, 0.5)], POLICY.model_copy(update={"decides": "wall"}))[2] == "slower"


def test_the_mean_of_a_quick_run_is_that_of_the_ratios_it_shows() -> None:
    """A row whose gain is not confirmed by single calls counts as shown, because a quick run excludes nothing."""
    states = [timed("a", 2.6, 1.0), timed("b", 1.7, 1.7)]
    device: Any = NoLimit()
    rows = [state.verdict(POLICY, device, True) for state in states]
    mean = headline_of(states, rows, POLICY, quick=True)[0]["stream"]
    assert isinstance(mean, Headline)
    assert mean.geomean == pytest.approx(math.sqrt(2.6 * 1.7), rel=0.02)
