"""Remedies for misspelt names, and messages with several problems."""

from __future__ import annotations

import pytest

from kernwright.core.errors import MOST_SHOWN, BadFile, BadFiles, FileProblems, did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("norm_infr", ["norm_infer", "add_norm"], "norm_infer"),
        ("Norm_Infer", ["norm_infer", "add_norm"], "norm_infer"),
        ("sglang@0.5.22", ["eager", "sglang@0.5.23"], "sglang@0.5.23"),
        ("zzz", ["norm_infer"], ""),
    ],
)
def test_a_misspelt_name_is_answered_with_the_closest(word: str, known: list[str], meant: str) -> None:
    remedy = did_you_mean(word, known, "use one of them")
    assert remedy.endswith("use one of them") and ("did you mean" in remedy) == bool(meant) and meant in remedy


def test_problems_are_raised_together() -> None:
    problems = FileProblems()
    problems.raise_any()
    first, second = BadFile("a.toml:1", "x", "is wrong", "correct it"), BadFile("b.toml", "", "is missing", "add it")
    with problems.collected():
        raise first
    with pytest.raises(BadFile) as single:
        problems.raise_any()
    assert single.value is first
    with problems.collected():
        raise BadFiles([second] * MOST_SHOWN)
    with pytest.raises(BadFiles) as several:
        problems.raise_any()
    assert several.value.problems == [first, *[second] * MOST_SHOWN]
    assert "a.toml:1: x: is wrong" in str(several.value) and "1 more" in str(several.value)
