"""The pages in this repository are those that its evidence produces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVIDENCE = "evidence/h200"


@pytest.mark.parametrize("command", [["-m", "kernwright", "results"], ["benchmarks/compare.py"]])
def test_pages_agree_with_the_evidence(command: list[str]) -> None:
    words = [sys.executable, *command, "--check", "--ledger", EVIDENCE]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
