"""The result of a row's samples."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernwright.judge.contest.faults import WrongOutput
from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.numerics.contracts import ErrorFigures
from kernwright.judge.numerics.correctness import CorrectnessReport
from kernwright.judge.process.faults import WorkerCheated, WorkerFailed
from kernwright.judge.record.decision import level_of
from kernwright.judge.record.sample import Role, Sample
from kernwright.judge.record.verdict import MetricResult, Outcome, RanImplementation, RowVerdict, Unavailable
from kernwright.judge.record.wall_check import shared_between_calls, wall_says
from kernwright.judge.rounds.row_state import RowState
from kernwright.judge.rounds.sizing import BlockSizes
from kernwright.judge.session.session import WrongBehaviour
from kernwright.tasks.policy import Metric, TimingPolicy
from kernwright.tasks.workload import Workload

POLICY = TimingPolicy(quads_per_round=8, first_look=1, max_rounds=1)


@pytest.fixture
def state(make_row: Callable[..., dict[str, Any]]) -> RowState:
    row = make_row("r", "axpy", {"x": [64, 64], "w": [64]}, {"y": [64, 64]})
    return RowState(row=Workload.model_validate(row))


def quads(
    metric: Metric, baseline_us: float, candidate_us: float, count: int = 8, noise: float = 0.002
) -> list[Sample]:
    """Return quads with small deviations of both signs. The baseline's times are the twin's too."""
    samples = []
    for number in range(count):
        ripple = 1 + noise * math.sin(number)
        b, c = baseline_us * 1e3, candidate_us * 1e3 * ripple
        times = {"baseline": (b, b), "again": (b * ripple, b * ripple), "candidate": (c, c)}
        samples.append(
            Sample(
                metric=metric,
                round=0,
                order=["baseline", "again", "candidate"],
                redone=0,
                busy=False,
                ns_per_call=times,
            )
        )  # type: ignore[arg-type]
    return samples


def verdict(state: RowState, quick: bool = False) -> RowVerdict:
    return state.verdict(POLICY, CpuDevice(), quick)


@pytest.mark.parametrize(
    ("cause", "fault"),
    [
        (WorkerCheated("forged"), "tampered"),
        (WrongBehaviour("changed its input x"), "incorrect"),
        (WrongOutput("call 3"), "incorrect"),
        (WorkerFailed("returned a list", "OutputProblem"), "incorrect"),
        (WorkerFailed("crashed"), "failed"),
        (WorkerFailed("no such file", "SideProblem"), "failed"),
    ],
)
def test_each_cause_has_its_verdict(state: RowState, cause: Exception, fault: str) -> None:
    assert state.pending
    state.condemn(cause)
    assert not state.pending
    found = verdict(state)
    assert (found.verdict, found.reasons) == (fault, (str(cause),))


def test_a_fault_outweighs_every_sample(state: RowState) -> None:
    state.samples = quads("stream", 100, 50)
    state.condemn(WorkerCheated("forged"))
    assert verdict(state).verdict == "tampered"


@pytest.mark.parametrize(
    ("candidate_us", "outcome"), [(50, "faster"), (97, "faster"), (100, "same"), (103, "slower"), (300, "slower")]
)
def test_the_ratio_is_baseline_over_candidate(state: RowState, candidate_us: float, outcome: str) -> None:
    state.samples = quads("stream", 100, candidate_us) + quads("wall", 110, candidate_us + 10)
    found = verdict(state)
    assert found.verdict == outcome
    result = found.metrics["stream"]
    assert isinstance(result, MetricResult)
    assert result.ratio == pytest.approx(100 / candidate_us, rel=0.01)
    assert result.interval[0] <= result.ratio <= result.interval[1]
    assert result.baseline_us == pytest.approx(100)
    assert result.quads == 8


def test_noise_widens_the_band(state: RowState) -> None:
    state.samples = quads("stream", 100, 97, noise=0.1)
    found = verdict(state)
    assert found.verdict == "inconclusive"
    assert isinstance(found.metrics["stream"], MetricResult)
    assert found.metrics["stream"].noise_band > 0.05


def test_mirrored_blocks_cancel_a_linear_drift() -> None:
    times = {"baseline": (100.0, 150.0), "candidate": (110.0, 136.3636363636)}
    sample = Sample(metric="stream", round=0, order=["baseline", "candidate"], redone=0, busy=False, ns_per_call=times)  # type: ignore[arg-type]
    assert sample.log_ratio("baseline", "candidate") == pytest.approx(0.0)
    assert sample.mean_us("baseline") == pytest.approx(math.sqrt(100 * 150) / 1e3)


@pytest.mark.parametrize(("release_us", "verdict_is"), [(3.0, "faster"), (20.0, "faster"), (40.0, "inconclusive")])
def test_a_gain_that_slow_freeing_pays_for_does_not_count(state: RowState, release_us: float, verdict_is: str) -> None:
    """Freeing outputs is outside the timed region, and must not cost more than half of the gain."""
    state.samples = quads("stream", 100, 50)
    for sample in state.samples:
        sample.released_ns = {"baseline": (2000.0, 2200.0), "candidate": (2100.0 + 1e3 * release_us,)}
    found = verdict(state)
    assert found.verdict == verdict_is, found.reasons
    assert any("freeing outputs" in reason for reason in found.reasons) == (verdict_is == "inconclusive")


def test_too_few_quads_decide_nothing(state: RowState) -> None:
    state.samples = quads("stream", 100, 50, count=5)
    found = verdict(state)
    assert found.verdict == "inconclusive"
    assert isinstance(found.metrics["stream"], Unavailable)
    assert "too few quads" in found.reasons[-1]


def test_a_row_that_was_never_timed_says_so(state: RowState) -> None:
    found = verdict(state)
    assert (found.verdict, found.reasons, found.metrics) == ("inconclusive", ("not timed",), {})


# A gain that exists only in a run of calls


def test_work_that_is_shared_between_calls_is_no_gain(state: RowState) -> None:
    state.samples = quads("stream", 1000, 100) + quads("wall", 1050, 1100)
    found = verdict(state)
    assert found.verdict == "inconclusive"
    assert "work is shared between calls" in found.reasons[-1]


def test_a_gain_that_wall_shows_too_counts(state: RowState) -> None:
    state.samples = quads("stream", 1000, 100) + quads("wall", 1050, 160)
    assert verdict(state).verdict == "faster"


def test_shared_work_shows_where_a_call_is_short_beside_the_pipe(state: RowState) -> None:
    """The pipe's cost of a single call must not hide that the gain is gone."""
    state.samples = quads("stream", 20, 2) + quads("wall", 120, 122)
    found = verdict(state)
    assert found.verdict == "inconclusive"


# Physics


def test_a_time_below_physics_is_tampering(state: RowState) -> None:
    fastest = CpuDevice().fastest_seconds(state.row.bytes_min, 1) * 1e6
    state.samples = quads("stream", 100 * fastest, 0.9 * fastest)
    found = verdict(state)
    assert found.verdict == "tampered"
    assert "impossible" in found.reasons[-1]
    state.samples = quads("stream", 100 * fastest, 1.2 * fastest)
    assert verdict(state).verdict == "faster"


# The sequential test


def test_a_decided_row_stops_and_an_undecided_one_goes_on(state: RowState) -> None:
    state.samples = quads("stream", 100, 97, noise=0.1)
    state.look(POLICY)
    assert state.pending
    state.samples = quads("stream", 100, 50)
    state.look(POLICY)
    assert not state.pending


def test_a_row_whose_time_is_spent_stops_undecided(state: RowState) -> None:
    state.samples = quads("stream", 100, 97, noise=0.1)
    state.spent_s = POLICY.row_budget_s + 1
    state.look(POLICY)
    assert not state.pending
    assert verdict(state).verdict == "inconclusive"
    assert "time budget of 20 s" in verdict(state).reasons[0]


FIVE_ROUNDS = TimingPolicy()


@pytest.mark.parametrize(
    ("candidate_us", "noise", "goes_on"),
    [(100, 0.05, True), (100, 0.6, False), (60, 0.5, True), (90, 0.6, False)],
    ids=["may yet be shown to be the same", "hopeless", "may yet be shown to be faster", "a hopeless difference"],
)
def test_a_row_that_no_number_of_rounds_would_decide_stops(
    state: RowState, candidate_us: float, noise: float, goes_on: bool
) -> None:
    state.samples = quads("stream", 100, candidate_us, noise=noise)
    state.look(FIVE_ROUNDS)
    assert state.pending, "the first look is too early for that"
    state.samples = quads("stream", 100, candidate_us, 12, noise)
    state.look(FIVE_ROUNDS)
    assert state.pending == goes_on
    if not goes_on:
        found = state.verdict(FIVE_ROUNDS, CpuDevice(), False)
        assert found.verdict == "inconclusive"
        assert "within 5 rounds" in found.reasons[0]


@pytest.mark.parametrize("strays", [0.0, 0.04], ids=["even noise", "stray quads"])
@pytest.mark.parametrize("seen", [12, 16])
def test_few_rows_that_all_rounds_would_decide_are_given_up(
    make_row: Callable[..., dict[str, Any]], seen: int, strays: float
) -> None:
    rng = random.Random(5)
    row = Workload.model_validate(make_row("r", "axpy", {"x": [64, 64], "w": [64]}, {"y": [64, 64]}))
    given_up = decided = saved = 0
    for _ in range(200):
        spread, gain = rng.choice([0.01, 0.03, 0.06, 0.1]), rng.choice([0.0, 0.03, 0.1])
        samples = []
        for _ in range(20):
            stray = 40 if rng.random() < strays else 1
            a, b, c = (1e5 * math.exp(rng.gauss(mean, stray * spread)) for mean in (0.0, 0.0, gain))
            times: dict[Role, tuple[float, float]] = {"baseline": (a, a), "again": (b, b), "candidate": (c, c)}
            samples.append(
                Sample(
                    metric="stream",
                    round=0,
                    order=["baseline", "again", "candidate"],
                    redone=0,
                    busy=False,
                    ns_per_call=times,
                )
            )
        early, late = RowState(row=row, samples=samples[:seen]), RowState(row=row, samples=samples)
        early.look(FIVE_ROUNDS)
        late.look(FIVE_ROUNDS)
        decided += late.decided
        given_up += late.decided and bool(early.reasons)
        saved += bool(early.reasons)
    assert decided > 50
    assert given_up <= decided / 20
    assert saved > 20, "the rule is of use"


def restless(calm: float) -> dict[Role, BlockSizes]:
    return dict.fromkeys(("baseline", "again", "candidate"), BlockSizes(40, 30, 100, calm))


def test_a_row_left_undecided_by_noise_starts_over_with_longer_blocks(state: RowState) -> None:
    noisy = quads("stream", 100, 97, noise=0.1)
    state.samples, state.sizes = list(noisy), restless(3.0)
    state.look(FIVE_ROUNDS)
    assert state.pending
    assert {(s.slots, s.stream_calls, s.longer) for s in state.sizes.values()} == {(100, 90, 2.5)}, "as memory allows"
    calm = [replace(sample, round=2, longer=state.longer) for sample in quads("stream", 100, 97)]
    state.samples += calm[:4]
    state.look(FIVE_ROUNDS)
    assert state.pending, "of so few long ones there is no interval, and with the short ones nothing is clear"
    state.samples += [replace(sample, round=3) for sample in calm[4:]]
    state.look(FIVE_ROUNDS)
    found = state.verdict(FIVE_ROUNDS, CpuDevice(), False)
    assert found.verdict == "faster" and found.metrics["stream"].quads == 8  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sizes", "policy"),
    [
        (BlockSizes(40, 30, 100, 1.2), TimingPolicy()),
        (BlockSizes(40, 30, 50, 4.0), TimingPolicy()),
        (BlockSizes(40, 30, 100, 4.0), TimingPolicy(max_rounds=3)),
        (BlockSizes(40, 30, 100, 4.0), TimingPolicy(decides="wall")),
    ],
    ids=["hardly calmer", "no memory for longer ones", "too few quads to come", "a call by itself has no longer block"],
)
def test_no_row_starts_over_in_vain(state: RowState, sizes: BlockSizes, policy: TimingPolicy) -> None:
    state.samples = quads(policy.decides, 100, 97, noise=0.1)
    state.sizes = dict.fromkeys(("baseline", "again", "candidate"), sizes)
    state.look(policy)
    assert state.pending and set(state.sizes.values()) == {sizes}


def test_no_row_starts_over_without_enough_rounds(state: RowState) -> None:
    state.samples, state.sizes = quads("stream", 100, 97, noise=0.1), restless(3.0)
    state.look(FIVE_ROUNDS, rounds=3)
    assert state.pending and state.sizes == restless(3.0), "of longer blocks there would be too few"
    state.look(FIVE_ROUNDS, rounds=4)
    assert state.sizes != restless(3.0)


def test_a_row_decided_at_the_first_look_does_not_start_over(state: RowState) -> None:
    state.samples, state.sizes = quads("stream", 100, 50), restless(4.0)
    state.look(FIVE_ROUNDS)
    assert not state.pending and state.sizes == restless(4.0)


def test_the_deciding_metric_pays_for_each_look() -> None:
    policy = TimingPolicy(decides="wall", first_look=1, max_rounds=5, error_budget=0.05)
    assert level_of("wall", policy) == pytest.approx(0.99)
    assert level_of("stream", policy) == pytest.approx(0.95)


def test_another_metric_can_decide(state: RowState) -> None:
    state.samples = quads("stream", 100, 50) + quads("wall", 100, 200)
    slow = POLICY.model_copy(update={"decides": "wall"})
    assert state.verdict(slow, CpuDevice(), False).verdict == "slower"


# What the record holds


def test_quick_shows_the_range_of_its_quads(state: RowState) -> None:
    state.samples = quads("stream", 100, 50, count=2, noise=0.01)
    result = verdict(state, quick=True).metrics["stream"]
    assert isinstance(result, MetricResult)
    ratios = sorted(math.exp(s.log_ratio("baseline", "candidate")) for s in state.samples)
    assert result.interval == pytest.approx(tuple(ratios))


def test_the_row_record(state: RowState) -> None:
    state.samples = quads("stream", 100, 50)
    state.unavailable["device"] = "candidate: no loop"
    state.copy_s = 2e-6
    state.report = CorrectnessReport(errors={"y": ErrorFigures(1e-3, math.nan, 1e-3, 1e-4)}, cases=9)
    found = verdict(state)
    assert found.metrics["device"] == Unavailable(unavailable="candidate: no loop")
    assert isinstance(found.metrics["wall"], Unavailable)
    assert found.errors["y"] == {"max_error": 1e-3, "rms_error": None, "eager_max": 1e-3, "eager_rms": 1e-4}
    assert (found.cases, found.deterministic, found.fastest_copy_us) == (9, True, pytest.approx(2.0))
    assert found.bytes_min == state.row.bytes_min


def figures(ratio: float, low: float, high: float, baseline_us: float, outcome: Outcome = "faster") -> MetricResult:
    return MetricResult(
        ratio=ratio, interval=(low, high), noise_band=0.05, baseline_us=baseline_us, candidate_us=baseline_us / ratio,
        quads=6, outcome=outcome,
    )  # fmt: skip


GAIN = figures(2.2, 2.0, 2.4, 100.0)


@pytest.mark.parametrize(
    ("wall", "doubt"),
    [
        (figures(2.0, 1.9, 2.1, 110.0), None),
        (figures(1.6, 0.8, 2.9, 110.0), None),
        (figures(0.93, 0.9, 0.97, 110.0), "work is shared"),
        # The interval includes half of the gain, but the estimate is below it.
        (figures(1.2, 1.0, 1.5, 110.0), "work is shared"),
        (figures(0.86, 0.7, 1.9, 110.0), "too noisy"),  # fine enough for the whole gain, but not for half of it
        (figures(0.86, 0.5, 2.9, 110.0), "too noisy"),
        (figures(2.0, 0.2, 12.0, 110.0), "too noisy"),
    ],
)
def test_a_gain_must_show_in_a_call_by_itself_and_noise_shows_nothing(wall: MetricResult, doubt: str | None) -> None:
    found = shared_between_calls(GAIN, wall)
    assert found is None if doubt is None else found and doubt in found


def test_a_side_without_a_gain_shares_no_work() -> None:
    """But it must not be slower in single calls than in runs of calls."""
    as_fast = figures(0.99, 0.98, 1.0, 100.0, "same")
    assert shared_between_calls(as_fast, figures(0.98, 0.95, 1.01, 110.0)) is None
    said = shared_between_calls(as_fast, figures(0.9, 0.85, 0.95, 110.0))
    assert said is not None and "122 us" in said and "110 us" in said


SMALL_GAIN = figures(1.08, 1.06, 1.10, 100.0)


@pytest.mark.parametrize(
    ("wall", "says"),
    [
        (figures(1.07, 1.04, 1.10, 130.0), "gained"),
        (figures(0.99, 0.96, 1.02, 130.0), "shared"),  # fine enough to show that there is no gain
        (figures(1.01, 0.85, 1.20, 130.0), "cannot tell"),  # single calls may lose more than runs of calls gain
        (figures(1.03, 0.95, 1.12, 130.0), "gained"),  # too coarse for the gain, but fine enough to exclude a loss
        (figures(0.90, 0.88, 0.92, 130.0), "shared"),
    ],
)
def test_a_gain_smaller_than_what_wall_can_see_must_at_least_be_no_loss(wall: MetricResult, says: str) -> None:
    assert wall_says(SMALL_GAIN, wall) == says


def test_a_large_gain_must_show_however_coarse_wall_is() -> None:
    """All of the gain may be shared between calls: the interval of `wall` reaches from the whole gain to an equally
    large loss."""
    assert wall_says(figures(2.0, 1.9, 2.1, 100.0), figures(1.02, 0.69, 2.0, 110.0)) == "cannot tell"


@pytest.mark.parametrize(
    ("gain", "wall", "says"),
    [
        (1.465, figures(1.05, 0.91, 1.27, 60.0), "cannot tell"),  # an honest row, as measured on a GPU
        (1.465, figures(1.17, 1.13, 1.21, 60.0), "gained"),  # the same row with more quads of `wall`
        (1.465, figures(1.05, 0.99, 1.12, 60.0), "shared"),  # shared work with more quads of `wall`
        (1.08, figures(1.00, 0.98, 1.04, 60.0), "cannot tell"),  # a small gain is no excuse
        (1.08, figures(1.00, 0.99, 1.02, 60.0), "shared"),
    ],
)
def test_a_middle_that_noise_may_have_moved_is_no_proof(gain: float, wall: MetricResult, says: str) -> None:
    assert wall_says(figures(gain, gain - 0.02, gain + 0.02, 30.0), wall) == says


def test_a_gain_counts_only_if_wall_shows_half_of_it() -> None:
    """A small gain for which `wall` is too coarse is an exception. It must be no loss."""
    draw = random.Random(7)
    seen = set()
    for _ in range(2000):
        gain, shown, spread = draw.uniform(1.02, 3.0), draw.uniform(-1.0, 0.49), 10 ** draw.uniform(-3, 0)
        gained = 100.0 * (1 - 1 / gain)
        ratio = 1 / (1 - shown * gained / 130.0)
        wall = figures(ratio, ratio * math.exp(-spread), ratio * math.exp(spread), 130.0)
        said = wall_says(figures(gain, gain * 0.99, gain * 1.01, 100.0), wall)
        is_small = gained < 0.05 * 130.0 and 130.0 * (1 / wall.interval[0] - 1 / wall.interval[1]) / 2 > gained
        assert said in (("gained", "cannot tell") if is_small else ("shared", "cannot tell"))
        seen.add((said, is_small))
    assert len(seen) == 4


def test_wall_pays_for_a_second_look() -> None:
    """All looks together keep the error budget, and the first look is as fine as six quads permit."""
    policy = TimingPolicy()
    first, again = level_of("wall", policy), level_of("wall", policy, waited=True)
    assert 1 - first == 2 / 2**6
    assert policy.looks == 4
    assert (1 - first) + (policy.looks - 1) * (1 - again) <= policy.error_budget + 1e-12


@pytest.mark.parametrize(("wall_us", "verdict_is"), [(45, "inconclusive"), (110, "faster")])
def test_a_call_takes_no_less_than_its_kernels(state: RowState, wall_us: float, verdict_is: str) -> None:
    state.samples = quads("stream", 200, 100) + quads("wall", 210, wall_us) + quads("device", 190, 90)
    found = verdict(state)
    assert found.verdict == verdict_is
    assert (verdict_is == "faster") or "less time than its kernels" in found.reasons[-1]


def test_a_row_waits_for_wall_where_that_cannot_tell_yet(state: RowState) -> None:
    noisy = [sample for us in (70, 130, 80, 120, 75, 135) for sample in quads("wall", 110, us, count=1)]
    state.samples = quads("stream", 100, 90) + noisy
    state.look(POLICY)
    assert state.awaits_wall and state.pending
    state.samples += 8 * quads("wall", 110, 100)
    state.look(POLICY)
    assert state.decided and not state.awaits_wall
    assert verdict(state).verdict == "faster"


def test_a_row_that_waits_in_vain_keeps_what_wall_has_shown(state: RowState) -> None:
    """No round is left for further measurements, so `wall` was looked at once and pays for one look."""
    noisy = [sample for us in (70, 130, 80, 120, 75, 135) for sample in quads("wall", 110, us, count=1)]
    assert len(noisy) == FIVE_ROUNDS.first_look * FIVE_ROUNDS.quads_of("wall"), "as many as there are at the first look"
    state.samples = quads("stream", 100, 90) + noisy
    state.look(FIVE_ROUNDS)
    assert state.awaits_wall
    assert isinstance(state.result("wall", FIVE_ROUNDS, quick=False), MetricResult)
    # Measured further: this is a second look now, and seven quads are few.
    state.samples += quads("wall", 110, 100, count=1)
    assert isinstance(state.result("wall", FIVE_ROUNDS, quick=False), Unavailable)


def test_a_row_that_wall_has_refuted_waits_no_longer(state: RowState) -> None:
    state.samples = quads("stream", 1000, 100) + quads("wall", 1050, 1100)
    state.look(POLICY)
    assert state.decided and not state.awaits_wall


def test_two_equal_sides_need_no_gain_to_show() -> None:
    same = figures(1.005, 0.99, 1.02, 100.0, "same")
    assert shared_between_calls(same, figures(0.995, 0.97, 1.02, 110.0)) is None
    assert "too noisy" in str(shared_between_calls(same, figures(1.0, 0.4, 2.5, 110.0)))


def test_replacements_of_kernels_are_named_last(state: RowState) -> None:
    state.ran = RanImplementation(backend="torch", contract="close", refused=("cuda (close): x is on cpu",))
    state.condemn(WrongOutput("y differs"))
    cause, note = verdict(state).reasons
    assert cause == "y differs" and "cuda (close): x is on cpu" in note


def test_a_time_is_the_devices_own_where_every_quad_says_so(state: RowState) -> None:
    samples = quads("device", 100, 50)
    for told in (len(samples), len(samples) - 1, 0):
        for number, sample in enumerate(samples):
            sample.by_events = number < told
        state.samples = [*quads("stream", 100, 50), *samples]
        result = state.result("device", POLICY, quick=False)
        assert isinstance(result, MetricResult)
        assert result.by_events == (told == len(samples))
