"""The command that is suggested after a verdict: it parses, and it asks for the missing part."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from kernwright.advice.next_step import next_steps
from kernwright.judge.judge_request import JudgeRequest
from kernwright.judge.record.verdict import INTERPRETED, UNTIMED, Verdict

REQUEST = {"task": "norm", "candidate": Path("my kernel"), "device": "cuda"}


def commands_after(outcome: str, request: dict[str, Any] | None = None, **verdict: Any) -> list[list[str]]:
    metrics = {"stream": {"unavailable": "x"}}
    reasons = {"row_a": "raises"}  # row_b has the same outcome for another reason
    rows = [
        {
            "id": id_,
            "op": "o",
            "verdict": outcome,
            "reasons": [reasons.get(id_, id_)],
            "metrics": metrics,
            "bytes_min": 1,
        }
        for id_ in ("row_a", "row_b")
    ]
    fields = {
        "task": "norm", "task_digest": "", "baseline": "eager", "baseline_digest": "", "candidate": "c",
        "candidate_digest": "", "style": "returns", "verdict": outcome, "reasons": (), "headline": {}, "rows": rows,
        "evidence": True, "provenance": {"seed": 8812}, "run": "run-1",
    }  # fmt: skip
    found = next_steps(Verdict.model_validate(fields | verdict), JudgeRequest(**REQUEST | (request or {})))
    return [shlex.split(step.command) for step in found]


ALL = ["kernwright", "judge", "norm", "--candidate", "my kernel"]


@pytest.mark.parametrize("outcome", ["faster", "same", "slower", "inconclusive"])
def test_after_a_quick_run_comes_the_full_one(outcome: str) -> None:
    assert commands_after(outcome, {"quick": True}, quick=True) == [[*ALL, "--device", "cuda"]]


@pytest.mark.parametrize("outcome", ["faster", "same"])
def test_after_a_good_verdict_comes_a_page_and_a_stronger_baseline(outcome: str) -> None:
    first, second = commands_after(outcome, {"ledger": Path("l")})
    assert first == ["kernwright", "report", "run-1", "--ledger", "l"]
    assert second == [*ALL, "--baseline", "compile", "--device", "cuda", "--ledger", "l"]
    assert len(commands_after(outcome, {"baseline": "compile"})) == len(commands_after("slower")) == 1


def test_after_a_wrong_result_comes_the_same_case_and_then_the_changed_candidate() -> None:
    again, changed = commands_after("incorrect", {"quick": True, "rows": "row_*", "rounds": 2}, quick=True)
    quick = ["--device", "cuda", "--quick", "--show-output"]
    assert again == [*ALL, "--rows", "row_a", "--device", "cuda", "--seed", "8812", "--quick", "--show-output"]
    assert changed == [*ALL, "--rows", "row_*", *quick]


@pytest.mark.parametrize("outcome", ["failed", "tampered"])
def test_after_another_fault_comes_a_failing_row_with_its_output(outcome: str) -> None:
    (first,) = commands_after(outcome, {"quick": True}, quick=True)
    assert first == [*ALL, "--rows", "row_a", "--device", "cuda", "--quick", "--show-output"]


def test_the_repeated_row_is_the_first_wrong_one() -> None:
    """Reasons are listed in the order of the rows, and a row that raises may come first."""
    row = {"op": "o", "bytes_min": 1}
    rows = [
        row | {"id": "raises", "verdict": "failed", "reasons": ["raises"]},
        row | {"id": "wrong_shape", "verdict": "incorrect", "reasons": ["wrong shape"]},
    ]
    first, *_ = commands_after("incorrect", rows=rows)
    assert first[first.index("--rows") + 1] == "wrong_shape"


def test_after_an_inconclusive_verdict_come_more_rounds_or_the_undecided_rows() -> None:
    assert commands_after("inconclusive", {"rounds": 2})[0] == [*ALL, "--device", "cuda"]
    assert commands_after("inconclusive")[0] == [*ALL, "--rows", "row_a,row_b", "--device", "cuda"]


def test_after_a_check_without_times_comes_the_way_to_times() -> None:
    row = {"id": "r", "op": "o", "verdict": "inconclusive", "bytes_min": 1}
    (on_gpu,) = commands_after("inconclusive", {"device": "cpu"}, rows=[row | {"reasons": [INTERPRETED]}], quick=True)
    assert on_gpu == [*ALL, "--device", "cuda"]
    (timed,) = commands_after("inconclusive", {"rows": "grid"}, rows=[row | {"reasons": [UNTIMED]}])
    assert timed == [*ALL, "--device", "cuda"]


def test_an_interrupted_run_is_repeated() -> None:
    assert commands_after("failed", interrupted=True) == [[*ALL, "--device", "cuda"]]
