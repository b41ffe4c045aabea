"""The note on candidates that run all of the baseline's operators."""

from __future__ import annotations

import pytest

from kernwright.judge.record.verdict import Kernel, baselines_own


def listed(*names: str) -> list[Kernel]:
    return [Kernel(name=name, stream=0, count=1) for name in names]


CHAIN = ("aten::mean", "aten::sub", "aten::tanh")


@pytest.mark.parametrize(
    "own",
    [
        CHAIN,
        ("aten::view", "aten::empty_like", *CHAIN),
        (*CHAIN, "aten::clone"),
        (*CHAIN[:2], "aten::tanh_"),
        (*CHAIN[:2], "aten::tanh.out"),
    ],
)
def test_a_candidate_that_calls_the_baselines_operators_is_disclosed(own: tuple[str, ...]) -> None:
    note = baselines_own({"baseline": listed(*CHAIN), "candidate": listed(*own)})
    assert note is not None and "aten::tanh" in note


@pytest.mark.parametrize("own", [(), ("aten::empty_strided",), (*CHAIN[:2], "aten::tanh_backward"), CHAIN[1:]])
def test_other_candidates_have_no_note(own: tuple[str, ...]) -> None:
    assert baselines_own({"baseline": listed(*CHAIN), "candidate": listed(*own)}) is None


def test_without_a_census_there_is_no_note() -> None:
    assert baselines_own({}) is None
    assert baselines_own({"candidate": listed(*CHAIN)}) is None
