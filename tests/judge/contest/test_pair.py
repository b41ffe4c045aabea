"""The blocks that a pair compares."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernwright.judge.contest.pair import Pair, pairs_of, sides_of
from kernwright.judge.record.sample import Quad
from kernwright.judge.rounds.sizing import ALIKE, lengths_of_calls


def test_equal_contestants_share_their_sides_and_none_is_judged_against_itself() -> None:
    pairs = pairs_of([("eager", "eager"), ("eager", "fast"), ("compile", "fast")])
    assert pairs == [
        Pair(),
        Pair(candidate="candidate-2"),
        Pair("baseline-2", "again-2", "candidate-2"),
    ]
    assert sides_of(pairs) == ["baseline", "again", "baseline-2", "again-2", "candidate", "candidate-2"]
    assert all(len(pair.roles) == 3 for pair in pairs)


def test_a_pair_has_the_same_result_in_a_large_quad_as_in_its_own() -> None:
    sides = ["candidate-2", "again", "baseline", "candidate"]
    times = {side: (float(number), number + 0.5) for number, side in enumerate(sides)}
    waited = frozenset({"candidate-2"})
    quad = Quad(metric="stream", round=1, order=sides, redone=2, kept_waiting=waited, ns_per_call=times)
    sample = quad.of(Pair(candidate="candidate-2").roles)
    assert sample.order == ["candidate", "again", "baseline"]
    assert sample.ns_per_call == {"candidate": (0.0, 0.5), "again": (1.0, 1.5), "baseline": (2.0, 2.5)}
    assert (sample.metric, sample.round, sample.redone, sample.busy) == ("stream", 1, 2, True)
    assert not quad.of(Pair().roles).busy, "another pair's contender waited"


def test_each_side_has_blocks_of_a_length_of_its_own() -> None:
    """If a contender is slow during probing, its blocks are so short that a later speed is noise of the clock. A slow
    baseline is called less often than a faster side."""
    seconds = {"baseline": 1e-4, "baseline-2": 4e-5, "candidate": 2.5e-5, "candidate-2": 1e-3}
    fast, slow, closer = Pair(), Pair(candidate="candidate-2"), Pair("baseline-2", "again-2", "candidate")
    lengths = lengths_of_calls(seconds, [fast, slow, closer])
    assert lengths["baseline"] == lengths["again"] == 1e-4 and lengths["baseline-2"] == lengths["again-2"] == 4e-5
    assert lengths["candidate-2"] == pytest.approx(1e-4), "being slow asks for no fewer"
    assert lengths["candidate"] == pytest.approx(math.sqrt(4e-5 * 2.5e-5)), "the fastest of its baselines counts"
    assert lengths_of_calls(seconds, [fast])["candidate"] == pytest.approx(math.sqrt(1e-4 * 2.5e-5))


@given(st.lists(st.floats(1e-6, 1e-3), min_size=2, max_size=2), st.lists(st.floats(1e-6, 1e-3), min_size=1, max_size=3))
def test_sides_that_are_nearly_alike_are_called_as_often(baselines: list[float], contenders: list[float]) -> None:
    """Otherwise a contender as fast as its baseline would sometimes have one call more per block, and never one
    less."""
    pairs = pairs_of([(one, number) for one in range(2) for number in range(len(contenders))])
    seconds = {pair.baseline: own for pair, own in zip(pairs[:: len(contenders)], baselines, strict=True)}
    seconds |= {pair.candidate: own for pair, own in zip(pairs, contenders, strict=False)}
    lengths = lengths_of_calls(seconds, pairs)
    for pair in pairs:
        alone = lengths_of_calls(seconds, [pair])
        assert all(lengths[side] <= alone[side] for side in pair.roles), "no fewer calls than by itself"
        assert lengths[pair.baseline] == lengths[pair.again]
        ratio = lengths[pair.baseline] / lengths[pair.candidate]
        assert ratio == 1 or not 1 / ALIKE < ratio < ALIKE
