"""What is taken off a block. The sessions here only tell times: what they are made of is for the protocol's tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from kernwright.judge.block import Block
from kernwright.judge.overhead import EMPTY_BLOCKS, FULL_BLOCKS, overhead_ns
from kernwright.judge.session import OutputsMoved
from kernwright.tasks.policy import Metric

EMPTY_NS, CALL_NS, CALLS = 400_000, 20_000, 100


def block_of(ns: int) -> Block:
    return Block(ns, ns, 0, 0, ())


@dataclass
class ClockedSession:
    """Blocks of known length: `beyond_ns` are what one takes beside its calls, one after the other."""

    beyond_ns: list[int | None] = field(default_factory=list)
    tells_events: bool = True
    asked: list[int] = field(default_factory=list)

    def prepare(self) -> None: ...

    def ready(self) -> None: ...

    def run_nothing(self, repeats: int) -> list[Block]:
        return [block_of(EMPTY_NS)] * repeats

    def run(self, order: range, *, with_python: bool) -> tuple[Block, Any]:
        self.asked.append(len(order))
        beyond = self.beyond_ns.pop(0)
        if beyond is None:
            raise OutputsMoved
        return block_of(CALL_NS * len(order) + beyond), None

    def event_ns(self) -> int:
        return CALL_NS * CALLS


def overhead(session: ClockedSession, metric: Metric = "stream") -> float:
    return overhead_ns(session, metric, CALLS)  # type: ignore[arg-type]


def test_what_full_blocks_take_beyond_their_events_is_taken_off() -> None:
    session = ClockedSession([500_000, 900_000, 480_000])
    assert overhead(session, "device") == 500_000, "the middle one: a hiccup does not count"
    assert session.asked == [CALLS] * FULL_BLOCKS
    assert EMPTY_BLOCKS % 2 and FULL_BLOCKS % 2, "there is a middle one"


@pytest.mark.parametrize(("beyond", "taken"), [(100_000, EMPTY_NS), (5_000_000, 3 * EMPTY_NS)])
def test_events_that_cannot_be_right_do_not_count(beyond: int, taken: float) -> None:
    assert overhead(ClockedSession([beyond] * FULL_BLOCKS)) == taken


def test_blocks_whose_outputs_moved_show_nothing() -> None:
    assert overhead(ClockedSession([None, 480_000, None])) == 480_000
    assert overhead(ClockedSession([None] * FULL_BLOCKS)) == EMPTY_NS


def test_without_events_and_for_a_call_by_itself_an_empty_block_must_do() -> None:
    assert overhead(ClockedSession(tells_events=False)) == EMPTY_NS
    assert overhead(ClockedSession(), "wall") == EMPTY_NS
