"""Known errors of measurement, each as a property that would fail if the error came back."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.process.block import Block
from kernwright.judge.process.faults import WorkerCheated
from kernwright.judge.protocol.orders import RowSignature, SideOrders
from kernwright.judge.record.decision import overall
from kernwright.judge.record.headline import headline_of
from kernwright.judge.record.sample import Role, Sample
from kernwright.judge.record.verdict import GOOD, Headline, MetricResult, RowVerdict, Unavailable
from kernwright.judge.rounds.row_state import RowState
from kernwright.judge.rounds.sizing import CoarseTimes, slots_for
from kernwright.judge.worker.entry import RowCall
from kernwright.tasks.policy import Metric, TimingPolicy
from kernwright.tasks.tensor import ConcreteTensor
from kernwright.tasks.workload import Workload

POLICY = TimingPolicy(quads_per_round=8, first_look=1, max_rounds=1)
SIDES: list[Role] = ["baseline", "again", "candidate"]
Times = Callable[[Role, int], float]


@pytest.fixture
def state(make_row: Callable[..., dict[str, Any]]) -> RowState:
    return _state(make_row, "r")


def _state(make_row: Callable[..., dict[str, Any]], name: str) -> RowState:
    row = make_row(name, "axpy", {"x": [64, 64], "w": [64]}, {"y": [64, 64]})
    return RowState(row=Workload.model_validate(row))


def measured(us: Times, quads: int = 8, metric: Metric = "stream", busy: bool = False) -> list[Sample]:
    """Return quads in the protocol's order: every side once, then mirrored, at advancing times."""
    samples, instant = [], 0
    for number in range(quads):
        order = SIDES[number % 3 :] + SIDES[: number % 3]
        times: dict[Role, list[float]] = {side: [] for side in SIDES}
        for side in (*order, *order[::-1]):
            times[side].append(us(side, instant) * 1e3)
            instant += 1
        pairs = {side: (first, second) for side, (first, second) in times.items()}
        samples.append(Sample(metric=metric, round=0, order=order, redone=0, busy=busy, ns_per_call=pairs))
    return samples


def ripple(instant: int) -> float:
    return 1 + 0.003 * math.sin(7.0 * instant)


def verdict(state: RowState, policy: TimingPolicy = POLICY, quick: bool = False) -> RowVerdict:
    return state.verdict(policy, CpuDevice(), quick)


def ratio(found: RowVerdict, metric: Metric = "stream") -> float:
    result = found.metrics[metric]
    assert isinstance(result, MetricResult)
    return result.ratio


# Times belong to the right side.


def test_swapped_slots_invert_the_verdict(state: RowState) -> None:
    """If baseline and candidate are exchanged, the record must show it."""
    state.samples = measured(lambda side, i: (50 if side == "candidate" else 100) * ripple(i))
    good = verdict(state)
    state.samples = measured(lambda side, i: (100 if side == "candidate" else 50) * ripple(i))
    bad = verdict(state)
    assert (good.verdict, bad.verdict) == ("faster", "slower")
    assert ratio(good) == pytest.approx(1 / ratio(bad), rel=0.02)


@pytest.mark.parametrize("speed", [0.999, 0.99, 1.004])
def test_a_machine_that_warms_up_or_drifts_favours_no_side(state: RowState, speed: float) -> None:
    """The machine becomes faster or slower for all sides alike. The side that comes second must not gain from it."""
    state.samples = measured(lambda side, i: 100 * speed**i * ripple(i))
    assert verdict(state).verdict == "same"
    assert ratio(verdict(state)) == pytest.approx(1, abs=0.01)


def test_a_drift_would_decide_if_sides_were_timed_one_after_the_other() -> None:
    """The mirrored order prevents this error: the same machine with sides one after the other."""
    sequential = [100 * 0.99**i for i in range(16)]
    assert statistics.mean(sequential[:8]) / statistics.mean(sequential[8:]) > 1.05


# Statistics


def test_no_quad_is_deleted_as_an_outlier(state: RowState) -> None:
    """A side with two speeds must keep both: dropping the slow half would make it faster."""
    state.samples = measured(lambda side, i: 100 * (0.8 if side == "candidate" and i % 2 else 1.25) * ripple(i), 16)
    found = verdict(state)
    assert found.verdict not in GOOD or ratio(found) < 1.3
    result = found.metrics["stream"]
    assert isinstance(result, MetricResult)
    assert result.quads == len(state.samples)


def test_the_best_of_many_is_not_the_result(state: RowState) -> None:
    """One lucky quad in eight must not count: the result is neither the smallest nor the largest time."""
    lucky = measured(lambda side, i: 100 * ripple(i))
    lucky[3] = Sample(
        metric="stream",
        round=0,
        order=SIDES,
        redone=0,
        busy=False,
        ns_per_call={**lucky[3].ns_per_call, "candidate": (1e4, 1e4)},
    )
    state.samples = lucky
    found = verdict(state)
    assert ratio(found) == pytest.approx(1, abs=0.01)
    result = found.metrics["stream"]
    assert isinstance(result, MetricResult)
    assert result.candidate_us == pytest.approx(100, rel=0.01)


@given(st.lists(st.floats(60, 140), min_size=1, max_size=5))
def test_a_few_shots_are_never_a_win(candidate_us: list[float]) -> None:
    """Five quads leave the interval open, however good they are: noise must not count as a gain."""
    row = {"id": "r", "op": "axpy", "set": "smoke", "inputs": {"x": {"shape": [64], "dtype": "fp32"}},
           "outputs": {"y": {"shape": [64], "dtype": "fp32"}}, "bytes_min": 512}  # fmt: skip
    state = RowState(row=Workload.model_validate(row))
    state.samples = [
        Sample(
            metric="stream",
            round=0,
            order=SIDES,
            redone=0,
            busy=False,
            ns_per_call={"baseline": (1e5, 1e5), "again": (1e5, 1e5), "candidate": (c * 1e2,) * 2},
        )
        for c in candidate_us
    ]
    assert verdict(state).verdict == "inconclusive"


def test_noise_of_the_baseline_against_itself_is_the_measure(state: RowState) -> None:
    """A difference that the baseline also shows against its twin does not count."""
    rng = random.Random(3)
    state.samples = measured(lambda side, i: 100 * (0.97 if side == "candidate" else 1) * (1 + rng.gauss(0, 0.04)))
    assert verdict(state).verdict not in {"faster", "slower"}


def test_noise_alone_is_hardly_ever_a_win(make_row: Any) -> None:
    """With equal sides and a look after each of many tries, the running best would usually be a win."""
    rng = random.Random(5)
    wins = 0
    for _ in range(200):
        state = _state(make_row, "r")
        state.samples = measured(lambda side, i: 100 * (1 + rng.gauss(0, 0.03)))
        wins += verdict(state).verdict == "faster"
    assert wins <= 6


# Many rows


def rows_of(make_row: Any, ratios: Sequence[float]) -> list[RowState]:
    states = [_state(make_row, f"r{n}") for n in range(len(ratios))]
    for state, speedup in zip(states, ratios, strict=True):
        state.samples = measured(
            lambda side, i, s=speedup: (1e3 / s if side == "candidate" else 1e3) * ripple(i)  # type: ignore[misc]
        )
    return states


def headline(states: list[RowState]) -> tuple[Headline | Unavailable, str | None]:
    rows = [verdict(state) for state in states]
    headlines, outcome = headline_of(states, rows, POLICY, quick=False)
    return headlines["stream"], overall([row.verdict for row in rows], outcome)


def test_one_huge_row_does_not_carry_the_mean(make_row: Any) -> None:
    """Arithmetic mean: (8 + 0.4 + 0.4 + 0.4) / 4 = 2.3 times faster. Geometric mean: slower, as on most rows."""
    found, outcome = headline(rows_of(make_row, [8.0, 0.4, 0.4, 0.4]))
    assert isinstance(found, Headline)
    assert found.geomean == pytest.approx((8 * 0.4**3) ** 0.25, rel=0.01)
    assert outcome == "slower"


def test_a_failed_row_does_not_count_as_one_in_the_mean(make_row: Any) -> None:
    """If it counted as 1.0 in the mean, a broken row would do no harm."""
    states = rows_of(make_row, [2.0, 2.0, 2.0])
    states[1].condemn(WorkerCheated("forged"))
    states[1].samples = []
    found, outcome = headline(states)
    assert outcome == "tampered"
    assert isinstance(found, Headline)
    assert found.rows == 2
    assert found.geomean == pytest.approx(2.0, rel=0.01)


def test_no_timed_row_is_no_verdict(make_row: Any) -> None:
    """Without measurements the result must be neither a mean of one nor a win."""
    found, outcome = headline([_state(make_row, "a"), _state(make_row, "b")])
    assert isinstance(found, Unavailable)
    assert outcome == "inconclusive"


def test_a_row_without_evidence_of_correctness_says_so(state: RowState) -> None:
    assert verdict(state).cases == 0
    assert verdict(state).deterministic is None
    assert verdict(state).verdict == "inconclusive"


# What a time measures.


def test_metrics_are_never_mixed(state: RowState) -> None:
    """A side that is ten times faster by wall clock alone is not faster if runs of calls decide, and conversely."""
    state.samples = measured(lambda side, i: 1e3 * ripple(i)) + measured(
        lambda side, i: (100 if side == "candidate" else 1e3) * ripple(i), metric="wall"
    )
    found = verdict(state)
    assert found.verdict == "same"
    assert ratio(found) == pytest.approx(1, abs=0.01)
    assert ratio(found, "wall") == pytest.approx(10, rel=0.02)


def test_a_gain_without_a_wall_time_beside_it_is_not_believed(state: RowState) -> None:
    """Shared work shows only in `wall`. Too few quads of `wall` must not switch this check off."""
    state.samples = measured(lambda side, i: (100 if side == "candidate" else 1e3) * ripple(i))
    state.samples += measured(lambda side, i: 1e3 * ripple(i), quads=5, metric="wall")
    assert verdict(state).verdict == "inconclusive"
    assert "no wall time" in verdict(state).reasons[-1]


@given(st.integers(6, 40), st.integers(1, 5), st.integers(0, 5))
def test_wall_has_an_interval_whenever_the_deciding_metric_has(quads: int, first_look: int, more: int) -> None:
    per_round = -(-quads // first_look)
    policy = TimingPolicy(quads_per_round=per_round, first_look=first_look, max_rounds=first_look + more)
    assert policy.quads_of("wall") * first_look >= 6


def test_both_sides_pay_for_their_outputs_memory() -> None:
    """A side that writes into given memory gets new memory inside the call, as the baseline does."""
    side = SideOrders(kind="candidate", language="python", style="writes")
    spec = ConcreteTensor(shape=(4, 8), dtype="fp32", strides=(8, 1))
    row = RowSignature(inputs=("x",), outputs=(spec,), scalars={}, style="returns")
    call = RowCall(side, lambda x, *, out: out.copy_(x), row).bind()
    x = torch.ones(4, 8)
    (first,), (second,) = call([x]), call([x])
    assert torch.equal(first, x)
    assert first.data_ptr() != second.data_ptr()


def test_blocks_are_long_beside_the_clock_however_short_the_call() -> None:
    """With too few calls per block, the clock and the pipe would be timed."""
    for call_s in (1e-6, 1e-5, 1e-4):
        slots = slots_for(call_s, POLICY.block_ms, 256)
        assert slots == 256 or slots * call_s >= 0.9 * POLICY.block_ms / 1e3
    least = slots_for(1.0, POLICY.block_ms, 256)
    assert least == 2, "one call would leave nothing to choose from in secret"


def test_time_that_the_machine_took_is_not_counted() -> None:
    """A process that is ready without a processor waits. A process that sleeps does not, so a side cannot claim waiting
    time."""
    assert Block(elapsed_ns=3000, running_ns=1000, processor_ns=600, ready_ns=400, pointers=()).waiting_ns == 400
    assert Block(elapsed_ns=3000, running_ns=1000, processor_ns=600, ready_ns=0, pointers=()).waiting_ns == 0
    assert Block(elapsed_ns=3000, running_ns=1000, processor_ns=1000, ready_ns=900, pointers=()).waiting_ns == 0


def test_a_busy_machine_is_reported(state: RowState) -> None:
    state.samples = measured(lambda side, i: (50 if side == "candidate" else 100) * ripple(i), busy=True)
    assert any("busy machine" in reason for reason in verdict(state).reasons)


def test_a_time_of_zero_is_impossible_rather_than_excellent(state: RowState) -> None:
    """A mean that underflows would be first in any table."""
    state.samples = measured(lambda side, i: (1e-6 if side == "candidate" else 100) * ripple(i))
    assert verdict(state).verdict == "tampered"


def test_a_difference_within_the_clocks_own_is_none(state: RowState) -> None:
    state.samples = measured(lambda side, i: (1.8 if side == "candidate" else 2.0) * ripple(i))
    assert verdict(state).verdict == "inconclusive"


def test_work_shared_between_calls_carries_no_mean_even_where_its_row_is_undecided(make_row: Any) -> None:
    """One quad of six without a gain leaves each row undecided. The interval of the four rows' mean clears the band,
    but counts only if single calls have the gain too."""

    def stream(side: Role, instant: int) -> float:
        return 100 * (0.7 if side == "candidate" and instant >= 6 else 1) * ripple(instant)

    alone = measured(lambda side, i: (130 if side == "candidate" else 100) * ripple(i), 6, "wall")
    for wall, expected in ((alone, "inconclusive"), (measured(stream, 6, "wall"), "faster")):
        states = [_state(make_row, f"r{n}") for n in range(4)]
        for state in states:
            state.samples = measured(stream, 6) + wall
        rows = [verdict(state) for state in states]
        assert [row.verdict for row in rows] == ["inconclusive"] * 4
        _, outcome = headline_of(states, rows, POLICY, quick=False)
        assert outcome == expected


def test_a_mean_is_not_the_same_where_its_row_is_not_believed(state: RowState) -> None:
    """The side is as fast in a run of calls, and far slower in a single call."""

    def stream(side: Role, instant: int) -> float:
        return 100 * ripple(instant)

    alone = measured(lambda side, i: (250 if side == "candidate" else 100) * ripple(i), 6, "wall")
    for wall, expected in ((alone, "inconclusive"), (measured(stream, 6, "wall"), "same")):
        state.samples = measured(stream, 12) + wall
        found = verdict(state)
        assert found.verdict == expected
        _, outcome = headline_of([state], [found], POLICY, quick=False)
        assert outcome == expected


class BusyMachine:
    """A session on a busy machine: most blocks are delayed, and now and then one of each kind is not."""

    op = row = None
    slots = 2
    outputs_may_move = False

    def __init__(self, call_ns: int, empty_ns: int, held_up_ns: int) -> None:
        self.call_ns, self.empty_ns, self.held_up_ns = call_ns, empty_ns, held_up_ns
        self.blocks = 0

    def begin(self, metric: str) -> None: ...

    def prepare(self) -> None: ...

    def ready(self) -> None: ...

    def run_empty_blocks(self, repeats: int) -> list[Block]:
        return [self.run([])[0] for _ in range(repeats)]

    def fill(self, slot: int, contents: object) -> None: ...

    def fill_all(self, contents: object) -> None: ...

    def run(self, order: Sequence[int], *, with_python: bool = True) -> tuple[Block, None]:
        self.blocks += 1
        elapsed = self.empty_ns + len(order) * self.call_ns + (0 if self.blocks % 3 == 0 else self.held_up_ns)
        return Block(elapsed_ns=elapsed, running_ns=elapsed, processor_ns=elapsed, ready_ns=0, pointers=()), None


class NoPool:
    def draw(self, *_: object) -> None: ...


def test_a_busy_machine_makes_no_call_look_free() -> None:
    """Otherwise it would need hundreds of slots for a large row, and the judge would spend its time on their
    contents."""
    session = BusyMachine(call_ns=1_000_000, empty_ns=50_000, held_up_ns=4_000_000)
    assert CoarseTimes(NoPool()).of_call(session) == pytest.approx(1e-3)  # type: ignore[arg-type]


def test_a_coarse_time_is_that_of_one_call_where_many_are_made() -> None:
    session = BusyMachine(call_ns=1_000_000, empty_ns=50_000, held_up_ns=4_000_000)
    session.outputs_may_move = True  # as on a GPU, where a switch between contexts takes longer than one call
    assert CoarseTimes(NoPool()).of_call(session) == pytest.approx(1e-3)  # type: ignore[arg-type]


def test_a_side_with_slow_empty_blocks_does_not_look_fast() -> None:
    """Otherwise it would have more calls per block than its baseline."""
    times = CoarseTimes(NoPool())  # type: ignore[arg-type]
    baseline = BusyMachine(call_ns=1_000_000, empty_ns=50_000, held_up_ns=4_000_000)
    dawdler = BusyMachine(call_ns=1_000_000, empty_ns=50_000, held_up_ns=4_000_000)
    dawdler.run_empty_blocks = lambda repeats: (
        [Block(elapsed_ns=1_000_000, running_ns=1_000_000, processor_ns=0, ready_ns=0, pointers=())] * repeats
    )  # type: ignore[method-assign]
    assert times.of_call(baseline) == pytest.approx(1e-3)  # type: ignore[arg-type]
    assert times.of_call(dawdler) == pytest.approx(1e-3)  # type: ignore[arg-type]
