"""The pages in this repository are those that its own evidence makes. `test_committed_evidence.py` verifies it."""

from __future__ import annotations

import sys
from pathlib import Path

import compare
import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app

ROOT = Path(__file__).parents[2]
WORDS = ["--check", "--ledger", "evidence/h200"]


@pytest.fixture(autouse=True)
def in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("kernwright.ledger.verify.verify", lambda _: [])


def test_the_results_follow_from_the_evidence() -> None:
    done = CliRunner().invoke(app, ["results", *WORDS])
    assert done.exit_code == 0, done.output


def test_the_comparisons_follow_from_the_evidence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare.py", *WORDS])
    assert compare.main() == 0, capsys.readouterr().err
