"""RetainedOutputs: the outputs that a worker must keep, against a worker that does as it is told."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from kernwright.judge.session.retained_outputs import CALLS_PER_RETAINED, MAX_RETAINED, MIN_RETAINED, RetainedOutputs

SIZES = (64, 8)


def read(_: Sequence[int]) -> dict[str, Any]:
    return {}


class Obedient:
    """The worker's side: it keeps its earlier outputs and the new ones, then only those that it was told to keep."""

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


@pytest.mark.parametrize("slots", [1, CALLS_PER_RETAINED, 40 * CALLS_PER_RETAINED])
def test_the_judge_knows_what_the_worker_holds(slots: int) -> None:
    retained, worker, rng = RetainedOutputs(slots, SIZES), Obedient(), random.Random(slots)
    assert MIN_RETAINED <= retained.capacity <= MAX_RETAINED
    exchanged = 0
    for block in range(400):
        before, number = retained.held, block % 100
        if number == 0:
            retained.expire()
        worker.prepare(retained.choose(read))
        assert [tuple(output.pointers) for output in retained.held] == worker.held
        assert len(worker.held) == (retained.capacity if number else 0)
        gone = [output for output in before if output not in retained.held]
        assert retained.dropped == gone, "dropped outputs are compared once more"
        if number > 1:
            assert retained.held[0] is before[0], "a ring of any length reuses it eventually"
            exchanged += len(gone)
        for calls in [1] * retained.capacity if rng.random() < 0.5 else [retained.capacity + rng.randrange(9)]:
            retained.note(worker.run(calls))
    assert exchanged, "the others come from later blocks"
    retained.end()
    retained.note(worker.run(5))
    assert retained.choose(read) == [] and not retained.spans


def test_a_side_that_returns_nothing_holds_nothing() -> None:
    for sizes in ((), (0,)):
        retained = RetainedOutputs(100, sizes)
        retained.note([0] * len(sizes))
        assert retained.choose(read) == [] and retained.extra_bytes == 0


def test_memory_that_is_held_is_found_among_spans() -> None:
    """Compared with a check of every pair."""
    rng = random.Random(5)
    found = 0
    for _ in range(400):
        retained = RetainedOutputs(1, (8, 0, 3))
        retained.note([rng.randrange(200) for _ in range(6)])
        retained.choose(read)
        ends = sorted(rng.sample(range(200), 4))
        spans = list(zip(ends[::2], ends[1::2], strict=True))
        overlaps = any(
            max(low, start) < min(high, end) for low, high in retained.spans if low < high for start, end in spans
        )
        assert retained.overlaps(spans) == overlaps
        found += overlaps
    assert 20 < found < 380
    assert not retained.overlaps([])
