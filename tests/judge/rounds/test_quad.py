"""HalfQuad: which part of the measured time belongs to calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernwright.judge.contest.pair import Pair
from kernwright.judge.process.block import Block
from kernwright.judge.record.sample import Quad
from kernwright.judge.rounds.overhead import Overhead
from kernwright.judge.rounds.quad import DiscardedBlock, HalfQuad, quad_of
from kernwright.tasks.policy import Metric


def half(elapsed_ns: int, calls: int, exchanges: int) -> HalfQuad:
    block = Block(elapsed_ns=elapsed_ns, running_ns=elapsed_ns - 30_000, processor_ns=0, ready_ns=0, pointers=())
    return HalfQuad(
        overhead=Overhead(100_000),
        blocks={"candidate": block},
        calls={"candidate": calls},
        exchanges={"candidate": exchanges},
    )


@pytest.mark.parametrize(("exchanges", "ns"), [(1, 90_000), (10, 0.05 * 100_000), (5, 50_000)])
def test_the_protocols_own_time_is_subtracted_once_per_exchange(exchanges: int, ns: float) -> None:
    assert half(1_000_000, 10, exchanges).ns_per_call("candidate", Overhead(100_000)) == pytest.approx(ns)


def test_work_after_the_answer_is_not_subtracted() -> None:
    own = half(1_000_000, 10, 1)
    own.blocks["candidate"] = replace(own.blocks["candidate"], processor_ns=960_000)
    now = Overhead(100_000, processor_ns=20_000, idle_ns=40_000)
    assert own.ns_per_call("candidate", now) == pytest.approx(94_000)


def test_a_slower_discarded_try_counts_for_a_side() -> None:
    own = half(1_000_000, 10, 1)
    own.tries = {
        "candidate": [DiscardedBlock(1_050_000, 10, Overhead(100_000)), DiscardedBlock(900_000, 10, Overhead(100_000))]
    }
    assert own.ns_per_call("candidate", Overhead(100_000)) == pytest.approx(95_000)
    assert own.ns_per_call("candidate", Overhead(150_000)) == pytest.approx(90_000), "which has drifted with the others"
    own.tries = {"candidate": [DiscardedBlock(1_050_000, 10, Overhead(200_000))]}
    assert own.ns_per_call("candidate", Overhead(100_000)) == pytest.approx(90_000), "it had more to read back then"


def test_time_after_the_standstill_counts_as_securing() -> None:
    assert half(1_000_000, 10, 1).secured_ns("candidate") == 30_000


EMPTY_NS, CALLS = 400_000, 10
TRUSTED = ("baseline", "again", "candidate-2")


def of_all(drift_ns: int = 0, base_ns: int = EMPTY_NS, **noise_ns: int) -> HalfQuad:
    """Return blocks of calls that take 200 us, and 110 us for the contenders, with the protocol's time added, longer
    for some."""
    call_ns = {"baseline": 200_000, "again": 200_000, "candidate": 110_000, "candidate-2": 110_000}
    found = HalfQuad(overhead=Overhead(base_ns), released_ns={"baseline": 5.0}, redone=1)
    for side, ns in call_ns.items():
        elapsed = CALLS * ns + base_ns + drift_ns + noise_ns.get(side.replace("-", "_"), 0)
        found.blocks[side] = Block(elapsed_ns=elapsed, running_ns=elapsed, processor_ns=0, ready_ns=0, pointers=())
        found.calls[side], found.exchanges[side] = CALLS, 1
        if side in TRUSTED:
            found.event_ns[side] = CALLS * ns
    return found


def quad(metric: Metric, first: HalfQuad, second: HalfQuad) -> Quad:
    return quad_of(metric, 3, list(first.blocks), first, second, {"candidate": 2})


def test_both_halves_use_the_protocols_time_in_either() -> None:
    found = quad("device", of_all(drift_ns=100_000), of_all(drift_ns=200_000))
    assert found.ns_per_call["candidate"] == pytest.approx((105_000, 115_000)), "the middle of both"
    assert found.overhead_ns == found.of(Pair().roles).overhead_ns == (550_000, 550_000)
    assert (found.round, found.redone, found.moved) == (3, 2, {"candidate": 2})
    assert found.released_ns["baseline"] == (5.0, 5.0) and found.released_ns["again"] == ()


def test_a_half_with_more_read_back_says_nothing_about_the_other() -> None:
    """A candidate decides whether its outputs move between the halves, and so how much must be read back."""
    found = quad("device", of_all(), of_all(base_ns=EMPTY_NS + 1_000_000))
    assert found.ns_per_call["candidate"] == pytest.approx((110_000, 110_000))
    assert found.ns_per_call["baseline"] == pytest.approx((200_000, 200_000))
    assert found.overhead_ns == (EMPTY_NS, EMPTY_NS + 1_000_000)


def test_a_side_that_had_to_wait_shows_no_overhead() -> None:
    first, second = of_all(baseline=300_000, again=300_000), of_all(baseline=300_000, again=300_000)
    first.waited, second.waited = frozenset({"baseline"}), frozenset({"again"})
    found = quad("device", first, second)
    assert found.kept_waiting == {"baseline", "again"}
    assert found.ns_per_call["candidate"] == pytest.approx((95_000, 95_000)), "the middle of those left"
    first.waited = second.waited = frozenset({"baseline", "again"})
    assert quad("device", first, second).ns_per_call["candidate"] == pytest.approx((110_000, 110_000))


def test_trusted_sides_kernels_are_timed_by_the_devices_own_events() -> None:
    second = of_all(candidate_2=-70_000)
    second.event_ns["baseline"] = 1_900_000
    sample = quad("device", of_all(baseline=90_000), second).of(Pair(candidate="candidate-2").roles)
    assert sample.by_events and sample.ns_per_call == {
        "baseline": (200_000, 190_000),
        "again": (200_000, 200_000),
        "candidate": (110_000, 110_000),
    }


def test_a_candidates_baseline_is_timed_by_the_same_clock() -> None:
    sample = quad("device", of_all(baseline=90_000), of_all()).of(Pair().roles)
    assert not sample.by_events
    assert sample.ns_per_call["baseline"] == pytest.approx((209_000, 200_000))


@pytest.mark.parametrize("metric", ["stream", "wall"])
def test_runs_of_calls_are_timed_by_the_judge(metric: Metric) -> None:
    sample = quad(metric, of_all(baseline=90_000), of_all()).of(Pair(candidate="candidate-2").roles)
    assert not sample.by_events
    assert sample.ns_per_call["baseline"][0] == pytest.approx(209_000)


@pytest.mark.parametrize("event_ns", [0, 3_000_000])
def test_events_that_cannot_be_true_tell_no_time(event_ns: int) -> None:
    wrong = of_all()
    wrong.event_ns["again"] = event_ns
    found = quad("device", of_all(), wrong)
    assert not found.of(Pair(candidate="candidate-2").roles).by_events
    assert found.overhead_ns == (EMPTY_NS, EMPTY_NS)
