"""Findings of compute-sanitizer about the shipped ops: only records of the present sources count, and the newest one of
each row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.baselines.shipped import Shipped
from kernwright.ledger.ledger import Ledger
from kernwright.report.results.results import Results
from kernwright.report.results.sanitized import Sanitized, Watched
from kernwright.tasks.catalog import find_task

TASK = find_task("norm_infer")
LAYER, RMS = (row for row in TASK.rows if row.set == "smoke")
Record = Callable[..., None]


def finding(tool: str, outcome: str, *calls: str, reason: str = "") -> dict[str, Any]:
    return {"tool": tool, "outcome": outcome, "reason": reason, "calls": list(calls), "seconds": 1.0, "missing": []}


@pytest.fixture
def record(tmp_path: Path) -> Record:
    def append(*findings: dict[str, Any], rows: Any = (LAYER, RMS), **more: Any) -> None:
        ops = tuple(sorted({row.op for row in rows}))
        body = {"task": TASK.name, "task_digest": TASK.digest, "candidate": "kernwright",
                "candidate_digest": Shipped(ops).digest, "ops": list(ops), "rows": [row.id for row in rows],
                "findings": list(findings), "hardware": {"model": "NVIDIA H200"}}  # fmt: skip
        with Ledger(tmp_path).open_run({"task": TASK.name}) as run:
            run.append("sanitizer", body | more)

    return append


def gathered(ledger: Path, model: str | None = "NVIDIA H200") -> Sanitized:
    return Results.gathered(Ledger(ledger), [TASK], "cuda", "production", model).sanitized


def told(ledger: Path, model: str | None = "NVIDIA H200") -> dict[tuple[str, str], Watched]:
    return {(row, tool): own for (_, row, tool), own in gathered(ledger, model).rows.items()}


def test_calls_count_for_their_row(record: Record, tmp_path: Path) -> None:
    record(finding("memcheck", "clean", f"{LAYER.id} S=1", f"{LAYER.id} S=2", f"{RMS.id} S=1"))
    assert told(tmp_path) == {
        (LAYER.id, "memcheck"): Watched("clean", "", 2),
        (RMS.id, "memcheck"): Watched("clean", "", 1),
    }
    assert gathered(tmp_path).table([TASK])[2:] == ["| norm_infer | 2 | clean: 2, 3 calls | not run: 2 |"]


def test_the_newest_record_of_a_row_counts_and_one_error_is_reported(record: Record, tmp_path: Path) -> None:
    record(finding("memcheck", "errors", f"{LAYER.id} S=1", reason="Invalid read | of 16 bytes"))
    assert {own.outcome for own in told(tmp_path).values()} == {"errors"}
    assert (
        gathered(tmp_path).table([TASK])[2]
        == "| norm_infer | 2 | **errors**: Invalid read / of 16 bytes | not run: 2 |"
    )
    record(finding("memcheck", "clean", f"{RMS.id} S=1"), rows=(RMS,))
    assert {row: own.outcome for (row, _), own in told(tmp_path).items()} == {LAYER.id: "errors", RMS.id: "clean"}


def test_a_row_without_a_call_is_not_clean(record: Record, tmp_path: Path) -> None:
    record(finding("racecheck", "clean", f"{RMS.id} S=1"))
    assert told(tmp_path)[LAYER.id, "racecheck"] == Watched("failed", "no call of the row completed", 0)


@pytest.mark.parametrize(
    "more",
    [
        {"task_digest": "another"},
        {"candidate_digest": "another"},
        {"ops": []},
        {"candidate": "mine"},
        {"task": "norm_scale_shift"},
    ],
)
def test_records_of_other_sources_do_not_count(record: Record, tmp_path: Path, more: dict[str, Any]) -> None:
    record(finding("memcheck", "clean", f"{RMS.id} S=1"), **more)
    assert told(tmp_path) == {}


def test_another_model_is_left_out(record: Record, tmp_path: Path) -> None:
    """Without a given model, the model of the judged rows counts. Here there is none."""
    record(finding("memcheck", "errors", f"{RMS.id} S=1"))
    record(finding("memcheck", "clean", f"{RMS.id} S=1", f"{LAYER.id} S=1"), hardware={"model": "NVIDIA B200"})
    assert {own.outcome for own in told(tmp_path).values()} == {"errors"}
    assert {own.outcome for own in told(tmp_path, "NVIDIA B200").values()} == {"clean"}
    assert told(tmp_path, None) == {}
