"""Advice: what a program reads after a verdict."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from kernwright.advice.advice import Advice, advice_after
from kernwright.advice.document import JudgedDocument
from kernwright.advice.failing_case import failing_case
from kernwright.judge.judge_request import JudgeRequest
from kernwright.judge.numerics.cases import Case
from kernwright.judge.record.verdict import Verdict
from kernwright.tasks.workload import Workload

REQUEST = JudgeRequest(task="norm", candidate=Path("mine"), rows="a,b", device="cuda", quick=True)


def metric(baseline_us: float, candidate_us: float) -> dict[str, Any]:
    ratio = baseline_us / candidate_us
    return {
        "ratio": ratio, "interval": [ratio, ratio], "noise_band": 0.01, "baseline_us": baseline_us,
        "candidate_us": candidate_us, "quads": 2, "outcome": "faster",
    }  # fmt: skip


def timed(name: str, candidate_us: float, kernels_us: float, launched: int = 1, **more: Any) -> dict[str, Any]:
    """Return a row of 1 MB whose copy takes 10 us, with a baseline of 40 us and two kernels."""
    listed = {
        "baseline": [{"name": "k", "stream": 0, "count": 2}, {"name": "Memset (Device)", "stream": 0, "count": 4}],
        "candidate": [{"name": "k", "stream": 0, "count": launched}],
    }
    metrics = {"stream": metric(40.0, candidate_us), "device": metric(30.0, kernels_us)}
    return {
        "id": name, "op": "o", "verdict": "faster", "metrics": metrics, "kernels": listed, "bytes_min": 10**6,
        "fastest_copy_us": 10.0, "least_us": 5.0,
    } | more  # fmt: skip


def verdict_of(outcome: str, *rows: dict[str, Any], **more: Any) -> Verdict:
    fields = {
        "task": "norm", "task_digest": "", "baseline": "eager", "baseline_digest": "", "candidate": "mine",
        "candidate_digest": "", "style": "returns", "verdict": outcome, "reasons": (), "headline": {}, "rows": rows,
        "quick": True, "evidence": False, "provenance": {"seed": 77}, "run": "run-1",
    }  # fmt: skip
    return Verdict.model_validate(fields | more)


def advice(outcome: str, *rows: dict[str, Any], **more: Any) -> Advice:
    return advice_after(verdict_of(outcome, *rows, **more), REQUEST)


def test_the_case_of_a_reason_is_the_one_that_the_judge_labelled() -> None:
    inputs = {"x": {"shape": ["S", "D"], "dtype": "fp32"}}
    row = Workload.model_validate(
        {"id": "r", "op": "o", "set": "smoke", "axes": {"S": 6, "D": 64}, "inputs": inputs, "outputs": inputs,
         "bytes_min": 3072}
    )  # fmt: skip
    for case in (Case(row, "rare_offset"), Case(row.model_copy(update={"axes": {}}), "normal")):
        found = failing_case(f"y differs [3, 4] [{case.label}], and again on 3 of 3 fresh inputs")
        assert found is not None and (found.distribution, found.sizes) == (case.distribution, case.row.axes)
    assert failing_case("the build failed: kernel.cc:2: error: [normal] inputs") is None


def test_a_wrong_row_has_its_case_and_the_command_that_repeats_it() -> None:
    row = {"op": "o", "bytes_min": 1}
    wrong = row | {"id": "b", "verdict": "incorrect", "reasons": ["y is off [tiny inputs, S=3]"], "cases": 4}
    late = wrong | {"id": "c", "fastest_copy_us": 1.0}
    crashed = row | {"id": "a", "verdict": "failed", "reasons": ["the build failed\n  at x"]}
    found = advice("incorrect", crashed, wrong, late)
    assert [(own.row, own.exact) for own in found.failures] == [("a", False), ("b", True), ("c", False)]
    case = found.failures[1].case
    assert case is not None and (case.distribution, case.sizes) == ("tiny", {"S": 3})
    words = shlex.split(found.failures[1].command)
    assert words[words.index("--rows") + 1 : words.index("--rows") + 2] == ["b"]
    assert words[words.index("--seed") + 1] == "77" and "--quick" in words
    assert found.commands[0].command == found.failures[1].command, "a wrong result is repeated before a crash"
    assert "row b" in found.sentence and "tiny" in found.sentence and "S=3" in found.sentence


def test_a_timed_row_has_its_distance_to_the_limit_and_its_counters() -> None:
    found = advice("faster", timed("near", 10.2, 9.9), timed("far", 20.0, 19.0, launched=3))
    far, near = found.rows
    assert (far.row, far.gb_per_s, far.share_of_copy, far.over_least) == ("far", 50.0, 0.5, 4.0)
    assert (far.baseline_kernels, far.candidate_kernels, far.kernels_us) == (2, 3, 19.0)
    assert near.share_of_copy is not None and near.share_of_copy > 0.95
    assert "row far" in found.sentence.lower() and "3 kernels" in found.sentence
    assert found.commands and not found.failures
    without = advice("faster", timed("far", 20.0, 19.0, kernels={}, fastest_copy_us=None))
    assert without.rows[0].candidate_kernels is without.rows[0].share_of_copy is None


def test_the_sentence_names_what_limits_the_candidate() -> None:
    assert "launch" in advice("faster", timed("short", 20.0, 4.0)).sentence
    assert "at the limit" in advice("same", timed("near", 10.1, 10.0)).sentence
    slower = advice("slower", timed("a", 50.0, 49.0), timed("b", 80.0, 79.0)).sentence
    assert "row b" in slower and "2.00 times" in slower
    assert "not timed" in advice("inconclusive", timed("a", 1.0, 1.0, metrics={})).sentence
    assert "interrupted" in advice("failed", timed("a", 1.0, 1.0), interrupted=True).sentence


def test_the_document_is_a_verdict_with_the_advice() -> None:
    verdict = verdict_of("faster", timed("a", 20.0, 19.0))
    text = JudgedDocument.of(verdict, advice_after(verdict, REQUEST)).model_dump_json()
    assert Verdict.model_validate_json(text) == verdict
    assert JudgedDocument.model_validate_json(text).next.rows[0].row == "a"
