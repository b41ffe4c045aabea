"""The overhead that is subtracted from a block. The sessions here have given times; the protocol's tests use real
ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kernwright.judge.process.block import Block
from kernwright.judge.rounds.overhead import (
    EMPTY_BESIDE,
    EMPTY_BLOCKS,
    EMPTY_EXCHANGES,
    FULL_BLOCKS,
    LEAST_SHOWN,
    MOST_DRIFT,
    SETTLED_NS,
    IdleTimes,
    Overhead,
)
from kernwright.judge.session.session import OutputsMoved
from kernwright.tasks.policy import Metric

EMPTY_NS, CALL_NS, CALLS = 400_000, 20_000, 100


def block_of(ns: int) -> Block:
    return Block(elapsed_ns=ns, running_ns=ns, processor_ns=0, ready_ns=0, pointers=())


@dataclass
class ClockedSession:
    """Blocks of known length: `beyond_ns` has the time of each block beyond its calls, in order."""

    beyond_ns: list[int | None] = field(default_factory=list)
    tells_events: bool = True
    protocol_drifts: bool = False
    call_ns: int = CALL_NS
    asked: list[int] = field(default_factory=list)
    empties: list[int] = field(default_factory=list)
    worker: Any = field(default_factory=lambda: SimpleNamespace(threads=1, processor=1))

    def prepare(self) -> None: ...

    def ready(self) -> None: ...

    def run_empty_blocks(self, repeats: int) -> list[Block]:
        self.empties.append(repeats)
        return [block_of(EMPTY_NS)] * repeats

    def run(self, order: range, *, with_python: bool) -> tuple[Block, Any]:
        self.asked.append(len(order))
        beyond = self.beyond_ns.pop(0)
        if beyond is None:
            raise OutputsMoved(block_of(0), None)
        return block_of(self.call_ns * len(order) + beyond), None

    def event_ns(self) -> int:
        return self.call_ns * CALLS


def overhead(session: ClockedSession, metric: Metric = "stream") -> Overhead:
    return Overhead.of(session, metric, CALLS)  # type: ignore[arg-type]


def test_time_of_full_blocks_beyond_their_events_is_subtracted() -> None:
    session = ClockedSession([500_000, 900_000, 480_000])
    found = overhead(session, "device")
    assert found == Overhead(EMPTY_NS, 100_000), "the middle one: a hiccup does not count"
    assert session.asked == [CALLS] * FULL_BLOCKS
    assert EMPTY_BLOCKS % 2 and FULL_BLOCKS % 2, "there is a middle one"


def test_drifting_exchanges_are_measured_many_times() -> None:
    """Blocks of other metrics, and exchanges with a stop in them, are long and similar, so fewer suffice."""
    session = ClockedSession([EMPTY_NS] * FULL_BLOCKS, protocol_drifts=True)
    overhead(session, "wall")
    overhead(session, "stream")
    session.protocol_drifts = False
    overhead(session, "wall")
    assert session.empties == [EMPTY_EXCHANGES, *[EMPTY_BESIDE] * FULL_BLOCKS, EMPTY_BLOCKS]
    assert EMPTY_EXCHANGES % 2, "there is a middle one"


def test_without_the_subtraction_every_ratio_would_move_towards_one() -> None:
    own = Overhead(200_000, 100_000)
    assert own.taken_off(6_300_000) / own.taken_off(2_300_000) == pytest.approx(3.0)
    assert Overhead(200_000).taken_off(800_000) / Overhead(200_000).taken_off(400_000) == pytest.approx(3.0)
    assert own.taken_off(1_000) > 0, "never below nothing: a logarithm follows"
    assert Overhead(100_000).taken_off(1_000_000, exchanges=5) == pytest.approx(500_000)


def test_little_work_has_little_overhead() -> None:
    """A side with short blocks is not credited with an overhead that only long blocks have."""
    own = Overhead(400_000, 100_000)
    for work in (100_000, 500_000, 999_000, 1_000_000, 1_050_000, 5_000_000):
        added = 100_000 * min(1.0, work / SETTLED_NS)
        assert own.taken_off(400_000 + work + added) == pytest.approx(work), "exactly what was added"
    short = [own.taken_off(400_000 + busy) for busy in range(0, 2_000_000, 50_000)]
    assert short == sorted(short), "more time is never less"


def test_a_twin_with_little_work_shows_a_part_of_the_overhead() -> None:
    session = ClockedSession([EMPTY_NS + 50_000] * FULL_BLOCKS, call_ns=5_000)
    assert overhead(session) == Overhead(EMPTY_NS, 100_000)


@pytest.mark.parametrize(("beyond", "more"), [(100_000, 0), (50_000_000, EMPTY_NS)])
def test_impossible_events_do_not_count(beyond: int, more: float) -> None:
    assert overhead(ClockedSession([beyond] * FULL_BLOCKS)).more_ns == more


def test_blocks_whose_outputs_moved_show_nothing() -> None:
    assert overhead(ClockedSession([None, 480_000, None])) == Overhead(EMPTY_NS, 80_000)
    assert overhead(ClockedSession([None] * FULL_BLOCKS)) == Overhead(EMPTY_NS)


def test_without_events_and_for_single_calls_empty_blocks_are_used() -> None:
    assert overhead(ClockedSession(tells_events=False)) == Overhead(EMPTY_NS)
    assert overhead(ClockedSession(), "wall") == Overhead(EMPTY_NS)


def shown(beyond_ns: float, events_ns: int = 2_500_000) -> tuple[int, int]:
    return round(events_ns + beyond_ns), events_ns


def test_the_blocks_of_a_quad_show_the_present_overhead() -> None:
    own = Overhead(EMPTY_NS, 100_000)
    now = own.as_of([shown(600_000), shown(590_000), shown(900_000), shown(605_000)])
    assert now == Overhead(502_500, 100_000), "the middle: a hiccup does not count"
    assert now.taken_off(2_500_000 + 602_500) == pytest.approx(2_500_000)
    assert own.as_of([shown(750_000, events_ns=999_000)] * 4) == own, "little work shows nothing"


def test_few_blocks_and_events_of_zero_show_no_drift() -> None:
    own = Overhead(EMPTY_NS, 100_000)
    assert own.as_of([shown(600_000)] * (LEAST_SHOWN - 1)) == own
    assert own.as_of([shown(600_000, events_ns=0)] * 4) == own
    assert own.as_of([]) == own


@pytest.mark.parametrize(("beyond", "drift"), [(9_000_000, 1 + MOST_DRIFT), (0, 1 - MOST_DRIFT)])
def test_the_drift_is_limited(beyond: int, drift: float) -> None:
    """Events that miss a part of a baseline's work must not make all sides look faster."""
    assert Overhead(EMPTY_NS).as_of([shown(beyond)] * 4).empty_ns == EMPTY_NS * drift


class Growing(ClockedSession):
    """A session whose empty blocks take longer once its outputs have moved, and longer still with every further
    block."""

    empty_ns = EMPTY_NS

    def run_empty_blocks(self, repeats: int) -> list[Block]:
        self.empties.append(repeats)
        return [block_of(self.empty_ns)] * repeats

    def run(self, order: range, *, with_python: bool) -> tuple[Block, Any]:
        self.empty_ns += 100_000
        return super().run(order, with_python=with_python)


def test_empty_blocks_from_before_outputs_moved_show_nothing() -> None:
    assert overhead(Growing([None, None, 780_000])) == Overhead(EMPTY_NS + 250_000, 130_000)


def test_full_and_empty_blocks_see_the_same_drift() -> None:
    """If all full blocks came first, the drift would look like time that work adds."""
    assert overhead(Growing([600_000, 700_000, 800_000])) == Overhead(EMPTY_NS + 200_000, 100_000)


# Work after the answer to the judge


EMPTY = Overhead(100_000, processor_ns=30_000, idle_ns=40_000)


def with_idle(idle_ns: int, exchanges: int = 1) -> Block:
    busy_ns = 1_000_000
    running_ns = busy_ns + exchanges * idle_ns
    return Block(
        elapsed_ns=running_ns, running_ns=running_ns, processor_ns=busy_ns, ready_ns=0, pointers=(), exchanges=exchanges
    )


def test_the_processor_time_of_empty_blocks_is_known_where_it_shows_idleness() -> None:
    session = ClockedSession(tells_events=False)
    assert overhead(session).processor_ns == 0 and overhead(session).idle_ns == EMPTY_NS
    session.worker.threads = 2
    assert overhead(session).processor_ns is None and overhead(ClockedSession(), "wall").processor_ns is None


def test_no_block_takes_less_than_its_processor_time() -> None:
    assert EMPTY.least_ns(with_idle(0)) == 970_000
    assert EMPTY.least_ns(with_idle(0, exchanges=4)) == 880_000
    assert Overhead(100_000).least_ns(with_idle(0)) == 0


def told_early(own_idle_ns: list[int], trusted_idle_ns: list[int], overhead: Overhead = EMPTY) -> bool:
    times = IdleTimes()
    for idle_ns in own_idle_ns:
        times.note("candidate", with_idle(idle_ns, exchanges=3), is_trusted=False)
    for idle_ns in trusted_idle_ns:
        times.note("baseline", with_idle(idle_ns, exchanges=3), is_trusted=True)
    return times.answers_early("candidate", overhead)


def test_a_worker_that_is_hardly_idle_has_answered_early() -> None:
    trusted = [60_000, 65_000, 70_000, 5_000_000] * 3
    assert told_early([15_000, 20_000, 25_000, 900_000] * 3, trusted)
    assert not told_early([20_000] * 7, trusted), "too few blocks"
    assert not told_early([20_000] * 12, trusted, Overhead(100_000)), "nothing is known of empty blocks"


def test_honest_workers_are_not_accused_of_early_answers() -> None:
    trusted = [60_000, 65_000, 70_000, 5_000_000] * 3
    assert not told_early([58_000, 61_000, 75_000, 900_000] * 3, trusted)
    assert not told_early([20_000] * 12, [*trusted, 25_000]), "a busy machine: the same happens to a trusted side"
    assert not told_early([45_000] * 12, [300_000] * 12), "the baseline sleeps in its calls"


def test_more_empty_blocks_show_a_shorter_idle_time() -> None:
    slow, session = Overhead(100_000, processor_ns=30_000, idle_ns=EMPTY_NS + 1), ClockedSession(tells_events=False)
    assert slow.with_least_idle(session).idle_ns == EMPTY_NS  # type: ignore[arg-type]
    assert EMPTY.with_least_idle(session).idle_ns == 40_000  # type: ignore[arg-type]
    session.empties.clear()
    assert Overhead(100_000).with_least_idle(session).idle_ns is None and not session.empties  # type: ignore[arg-type]
