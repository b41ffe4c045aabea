"""Half: how much of what the clock showed were calls."""

from __future__ import annotations

import pytest

from kernwright.judge.block import Block
from kernwright.judge.half import Half
from kernwright.judge.overhead import Overhead


def half(elapsed_ns: int, calls: int, exchanges: int) -> Half:
    block = Block(elapsed_ns, elapsed_ns - 30_000, 0, 0, ())
    return Half(blocks={"candidate": block}, calls={"candidate": calls}, exchanges={"candidate": exchanges})


@pytest.mark.parametrize(("exchanges", "ns"), [(1, 90_000), (10, 0.05 * 100_000), (5, 50_000)])
def test_the_protocols_own_time_is_taken_off_once_an_exchange(exchanges: int, ns: float) -> None:
    assert half(1_000_000, 10, exchanges).ns_per_call("candidate", Overhead(100_000)) == pytest.approx(ns)


def test_a_slower_try_that_was_not_counted_is_what_a_side_has() -> None:
    own = half(1_000_000, 10, 1)
    own.slowest_ns = {"candidate": 95_000.0}
    assert own.ns_per_call("candidate", Overhead(100_000)) == 95_000
    own.slowest_ns = {"candidate": 85_000.0}
    assert own.ns_per_call("candidate", Overhead(100_000)) == pytest.approx(90_000)


def test_what_followed_its_standstill_was_securing() -> None:
    assert half(1_000_000, 10, 1).secured_ns("candidate") == 30_000
