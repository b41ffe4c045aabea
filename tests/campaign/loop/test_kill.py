"""A campaign that is killed after each record and each commit, and resumed each time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "bench_campaign_kill.py"


@pytest.mark.slow
def test_no_iteration_is_lost_or_doubled() -> None:
    """Run in a process of its own: each attempt is a fork, and the processes of other tests may have threads."""
    words = [sys.executable, str(BENCHMARK), "--points", "all", "--iterations", "2"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    kills = int(ended.stdout.split()[0])
    # One after each record of the campaign's start, baseline and end, of two iterations, and of their commits.
    assert kills >= 3 + 2 * 3 + 2 * 2
