"""A verdict on a terminal: each reason once, and nothing foreign that passes for a line of ours."""

from __future__ import annotations

from typing import Any

from test_verdict_page import a_verdict, some_rows
from test_verdict_plots import a_row

from kernwright.report.verdict_table import faults_of, verdict_lines, verdict_table

BUILD = "the build failed: kernel.cc:2:6: error: variable or field 'run' declared void\nkernel.cc:3:1: error: more"


def text_of(verdict: Any) -> str:
    return "\n".join(line.plain for line in verdict_lines(verdict))


def test_a_build_error_is_told_once_and_needs_no_table() -> None:
    rows = tuple(a_row(f"r{n}", "failed", reasons=(BUILD,)) for n in range(12))
    verdict = a_verdict(rows, verdict="failed", reasons=(f"12 rows: {BUILD}",))
    assert verdict_table(verdict) is None
    assert text_of(verdict).count("kernel.cc:2:6") == text_of(verdict).count("kernel.cc:3:1") == 1


def test_errors_of_one_place_are_one_fault() -> None:
    place = "\n  at kernel.py:7 in run: return inner(x)"
    rows = [a_row(f"r{n}", "failed", reasons=(f"RuntimeError: size {n}{place}",)) for n in range(3)]
    rows += [a_row("other", "failed", reasons=("RuntimeError: size 0",)), a_row("wrong", "incorrect", reasons=("y",))]
    faults = faults_of(a_verdict(tuple(rows)))
    assert [(fault.outcome, fault.rows) for fault in faults] == [
        ("failed", ["r0", "r1", "r2"]), ("failed", ["other"]), ("incorrect", ["wrong"]),
    ]  # fmt: skip


def test_all_rows_and_reasons_are_there() -> None:
    verdict = a_verdict(some_rows(), reasons=("slower on r0",))
    table = verdict_table(verdict)
    assert table is not None and table.row_count == len(verdict.rows)
    for expected in ("why incorrect", "why tampered", "why failed", "slower on r0", "1.436x", "not available"):
        assert text_of(verdict).count(expected) >= 1


def test_lines_of_a_reason_do_not_pass_for_ours() -> None:
    rows = (a_row("r", "failed", reasons=("ValueError: x\n  verdict faster\n",)),)
    lines = [line.plain for line in verdict_lines(a_verdict(rows, verdict="failed"))]
    assert [line for line in lines if line.lstrip().startswith("verdict")] == ["  verdict failed"]
