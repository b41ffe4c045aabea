"""Whose blocks are held against whose."""

from __future__ import annotations

import math

import pytest

from kernwright.judge.pair import Pair, pairs_of, sides_of
from kernwright.judge.quad import Quad
from kernwright.judge.sizing import length_of_call


def test_equal_parties_share_their_sides_and_nobody_is_judged_by_itself() -> None:
    pairs = pairs_of([("eager", "eager"), ("eager", "fast"), ("compile", "fast")])
    assert pairs == [
        Pair(),
        Pair(candidate="candidate-2"),
        Pair("baseline-2", "again-2", "candidate-2"),
    ]
    assert sides_of(pairs) == ["baseline", "again", "baseline-2", "again-2", "candidate", "candidate-2"]
    assert all(len(pair.roles) == 3 for pair in pairs)


def test_a_quad_of_many_says_of_a_pair_what_one_of_three_would() -> None:
    sides = ["candidate-2", "again", "baseline", "candidate"]
    times = {side: (float(number), number + 0.5) for number, side in enumerate(sides)}
    quad = Quad("stream", 1, sides, 2, frozenset({"candidate-2"}), times)
    sample = quad.of(Pair(candidate="candidate-2"))
    assert sample.order == ["candidate", "again", "baseline"]
    assert sample.ns_per_call == {"candidate": (0.0, 0.5), "again": (1.0, 1.5), "baseline": (2.0, 2.5)}
    assert (sample.metric, sample.round, sample.redone, sample.busy) == ("stream", 1, 2, True)
    assert not quad.of(Pair()).busy, "another pair's contender waited"


def test_a_block_is_sized_for_the_pair_that_needs_most_calls() -> None:
    seconds = {"baseline": 1e-4, "candidate": 2.5e-5, "candidate-2": 1e-3}
    fast, slow = Pair(), Pair(candidate="candidate-2")
    assert length_of_call(seconds, [slow]) == pytest.approx(1e-4), "being slow asks for no fewer"
    assert length_of_call(seconds, [fast]) == pytest.approx(math.sqrt(1e-4 * 2.5e-5))
    assert length_of_call(seconds, [slow, fast]) == length_of_call(seconds, [fast])
