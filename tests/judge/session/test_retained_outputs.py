"""Keepsakes: what a worker is to go on holding, against a worker that does as it is told."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from kernwright.judge.session.retained_outputs import CALLS_EACH, LEAST, MOST, Keepsakes

SIZES = (64, 8)


def read(_: Sequence[int]) -> dict[str, Any]:
    return {}


class Obedient:
    """A worker's end of it: what it holds, then what it was given, then only what it was told to keep."""

    def __init__(self) -> None:
        self.held: list[tuple[int, int]] = []
        self.given: list[tuple[int, int]] = []
        self.calls = 0

    def run(self, calls: int) -> list[int]:
        made = [(100 * number, 100 * number + 80) for number in range(self.calls, self.calls + calls)]
        self.calls += calls
        self.given += made
        return [pointer for pointers in made for pointer in pointers]

    def prepare(self, hold: Sequence[int]) -> None:
        so_far = [*self.held, *self.given]
        self.held, self.given = [so_far[place] for place in hold], []


@pytest.mark.parametrize("slots", [1, CALLS_EACH, 40 * CALLS_EACH])
def test_the_judge_knows_what_the_worker_holds(slots: int) -> None:
    keepsakes, worker, chance = Keepsakes(slots, SIZES), Obedient(), random.Random(slots)
    assert LEAST <= keepsakes.most <= MOST
    exchanged = 0
    for block in range(400):
        before, number = keepsakes.held, block % 100
        if number == 0:
            keepsakes.expire()
        worker.prepare(keepsakes.choose(read))
        assert [tuple(keepsake.pointers) for keepsake in keepsakes.held] == worker.held
        assert len(worker.held) == (keepsakes.most if number else 0)
        gone = [keepsake for keepsake in before if keepsake not in keepsakes.held]
        assert keepsakes.parting == gone, "whatever is let go of is looked at"
        if number > 1:
            assert keepsakes.held[0] is before[0], "a ring of any length comes round to it"
            exchanged += len(gone)
        for calls in [1] * keepsakes.most if chance.random() < 0.5 else [keepsakes.most + chance.randrange(9)]:
            keepsakes.note(worker.run(calls))
    assert exchanged, "others are of later blocks"
    keepsakes.end()
    keepsakes.note(worker.run(5))
    assert keepsakes.choose(read) == [] and not keepsakes.spans


def test_nothing_is_held_where_nothing_is_returned() -> None:
    for sizes in ((), (0,)):
        keepsakes = Keepsakes(100, sizes)
        keepsakes.note([0] * len(sizes))
        assert keepsakes.choose(read) == [] and keepsakes.room == 0


def test_memory_that_is_held_is_found_among_spans() -> None:
    """Against a look at every pair."""
    chance = random.Random(5)
    found = 0
    for _ in range(400):
        keepsakes = Keepsakes(1, (8, 0, 3))
        keepsakes.note([chance.randrange(200) for _ in range(6)])
        keepsakes.choose(read)
        ends = sorted(chance.sample(range(200), 4))
        spans = list(zip(ends[::2], ends[1::2], strict=True))
        overlaps = any(
            max(low, start) < min(high, end) for low, high in keepsakes.spans if low < high for start, end in spans
        )
        assert keepsakes.lie_in(spans) == overlaps
        found += overlaps
    assert 20 < found < 380
    assert not keepsakes.lie_in([])
