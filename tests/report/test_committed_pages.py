"""The pages in this repository are those that its own evidence makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EVIDENCE = "evidence/h200"


def test_they_say_what_the_evidence_says() -> None:
    command = [sys.executable, "-m", "kernwright", "results", "--check", "--ledger", EVIDENCE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
