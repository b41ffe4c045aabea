"""The scoreboard: which verdicts are compared with each other, and which one is the best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.ledger.ledger import Ledger


def body(candidate: str, speedup: float | None, verdict: str = "faster", rows: int = 2, **more: Any) -> dict[str, Any]:
    headline = {
        "geomean": speedup, "interval": [speedup * 0.9, speedup * 1.1], "noise_band": 0.01, "worst_row": "r0",
        "worst_ratio": speedup, "rows": rows,
    } if speedup else {"unavailable": "no row was timed"}  # fmt: skip
    return {
        "task": "norm", "task_digest": "a", "baseline": "eager", "baseline_digest": "b", "candidate": candidate,
        "candidate_digest": "c", "style": "returns", "verdict": verdict, "reasons": [], "evidence": True,
        "headline": {"stream": headline, "wall": headline},
        "rows": [{"id": f"r{n}", "op": "o", "verdict": verdict, "bytes_min": 1} for n in range(rows)],
        "provenance": {"policy": {"decides": "stream"}, "device": "cuda", "hardware": {"model": "H200"}}, **more,
    }  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def shown(ledger: Ledger, bodies: list[dict[str, Any]], *words: str) -> str:
    for own in bodies:
        with ledger.open_run({"task": own["task"]}) as writer:
            writer.append("verdict", own)
    result = CliRunner().invoke(app, ["ledger", "show", "--ledger", str(ledger.root), *words])
    assert result.exit_code == 0, result.output
    return result.output


def best_of(ledger: Ledger, *bodies: dict[str, Any]) -> list[str]:
    lines = map(json.loads, shown(ledger, list(bodies), "--json").splitlines())
    return [own["candidate"] for line in lines for own in line["verdicts"] if own["best"]]


@pytest.mark.parametrize(
    ("better", "best"),
    [
        ({}, ["b"]),
        ({"speedup": 1.4}, ["a"]),
        ({"evidence": False}, ["a"]),
        ({"verdict": "inconclusive"}, ["a"]),
        ({"verdict": "failed"}, ["a"]),
        ({"speedup": None, "verdict": "tampered"}, ["a"]),
        ({"rows": 1}, ["a", "b"]),  # a mean over other rows cannot be compared
        ({"task_digest": "z"}, ["a", "b"]),
        ({"baseline": "compile"}, ["a", "b"]),
        ({"provenance": {"policy": {"decides": "wall"}, "hardware": {"model": "H200"}}}, ["a", "b"]),
        ({"provenance": {"policy": {"decides": "stream"}, "hardware": {"model": "B200"}}}, ["a", "b"]),
    ],
)
def test_the_best_is_the_highest_proven_speedup_of_the_same_comparison(
    ledger: Ledger, better: dict[str, Any], best: list[str]
) -> None:
    assert best_of(ledger, body("a", 1.5), body(**{"candidate": "b", "speedup": 2.0} | better)) == best


def test_a_line_has_the_verdict_and_the_speedup_with_its_interval(ledger: Ledger) -> None:
    text = shown(ledger, [body("slow", 0.5, "slower"), body("quick", 2.0)])
    lines = [line for line in text.splitlines() if any(run in line for run in ledger.runs())]
    assert "quick" in lines[0] and "slow" in lines[1], "the highest speedup first"
    assert all(figure in lines[0] for figure in ("faster", "2.000x", "1.800 – 2.200", "best"))
    assert "best" not in lines[1] and "norm against eager on H200" in text


def test_runs_that_have_no_verdict_or_an_unreadable_one_are_not_hidden(ledger: Ledger) -> None:
    with ledger.open_run({"task": "norm"}):
        pass
    text = shown(ledger, [{"task": "norm", "verdict": {"outcome": "faster"}}])
    assert "1 run(s) without a verdict" in text and ledger.runs()[1] in text


def test_foreign_names_cannot_start_a_line(ledger: Ledger) -> None:
    text = shown(ledger, [body("fake\nbest: mine", 2.0, task="norm\nbest: mine")])
    assert "best: mine" in text and not any(line.startswith("best: mine") for line in text.splitlines())
