"""A verdict on a terminal: each reason once, and no foreign text that looks like a line of ours."""

from __future__ import annotations

from typing import Any

import pytest
from test_verdict_page import HEADLINE, a_verdict, some_rows
from test_verdict_plots import a_row

from kernwright.advice.fault import faults_of
from kernwright.judge.record.verdict import Outcome
from kernwright.report.verdict_table import verdict_lines, verdict_table

BUILD = "the build failed: kernel.cc:2:6: error: variable or field 'run' declared void\nkernel.cc:3:1: error: more"


def text_of(verdict: Any) -> str:
    return "\n".join(line.plain for line in verdict_lines(verdict))


def test_a_build_error_is_shown_once_without_a_table() -> None:
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


def test_each_metric_has_a_line_with_its_outcome_the_deciding_one_first() -> None:
    wall = HEADLINE.model_copy(update={"outcome": "inconclusive"})
    stream = HEADLINE.model_copy(update={"outcome": "faster", "undecided": ("r9",)})
    verdict = a_verdict(some_rows(), metric="stream", headline={"wall": wall, "stream": stream})
    first, second = text_of(verdict).split("\n")[:2]
    assert first.split()[:3] == ["stream", "decides", "faster"] and "1 undecided" in first
    assert second.split()[:2] == ["wall", "inconclusive"]


@pytest.mark.parametrize("outcome", ["incorrect", "tampered", "failed"])
def test_a_faulty_verdict_shows_no_speedup(outcome: Outcome) -> None:
    assert "1.436x" not in text_of(a_verdict(some_rows(), verdict=outcome))


def test_every_undecided_row_is_listed_with_its_reason() -> None:
    rows = tuple(a_row(f"r{n}", "inconclusive", reasons=("too noisy", "busy")[: 1 + (n > 4)]) for n in range(9))
    verdict = a_verdict(rows, verdict="faster", reasons=("undecided on 9 of 9 rows: r0, r1, r2, r3",))
    lines = text_of(verdict).split("\n")
    assert sum("undecided on" in line for line in lines) == 1
    assert [line.strip() for line in lines[-2:]] == ["r0, r1, r2, r3, r4: too noisy", "r5, r6, r7, r8: too noisy; busy"]


def test_notes_that_differ_in_figures_are_one() -> None:
    rows = [a_row(f"r{n}", "faster", reasons=(f"{n} of 8 quads were taken on a busy machine",)) for n in range(5)]
    rows.append(a_row("last", "same", reasons=("two calls differ",), process_calls=12345))
    notes = [line for line in text_of(a_verdict(tuple(rows))).split("\n") if "note: " in line]
    assert len(notes) == 3 and "12,345" in notes[2]
    assert "r0" in notes[0] and "1 more" in notes[0] and "last: two calls differ" in notes[1]


def test_lines_of_a_reason_do_not_look_like_ours() -> None:
    rows = (a_row("r", "failed", reasons=("ValueError: x\n  verdict faster\n",)),)
    lines = [line.plain for line in verdict_lines(a_verdict(rows, verdict="failed"))]
    assert [line for line in lines if line.lstrip().startswith("verdict")] == ["  verdict failed"]
