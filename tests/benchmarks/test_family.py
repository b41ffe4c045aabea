"""Benchmarks by hand: one for every family, on the judge's own pieces."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kernwright.baselines.lock import read_lock
from kernwright.campaign.ledger import Ledger
from kernwright.tasks.baseline import BUILT_IN

ROOT = Path(__file__).parents[2]
OTHERS = ("bench_beside.py", "bench_judge.py", "bench_judge_gpu.py", "bench_ops.py")  # not of one family
SCRIPTS = [path for path in (ROOT / "benchmarks").glob("bench_*.py") if path.name not in OTHERS]


def words_of(script: Path) -> list[str]:
    """The task and the contenders that a script names."""
    calls = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.Call)]
    (call,) = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "benchmark")
    return [ast.literal_eval(argument) for argument in call.args]


def test_every_family_has_one_and_names_what_exists() -> None:
    named = [words_of(script) for script in SCRIPTS]
    assert sorted(task for task, *_ in named) == sorted(path.parent.name for path in ROOT.glob("tasks/*/task.toml"))
    known = {*BUILT_IN, *read_lock().names()}
    assert all(contenders and set(contenders) <= known for _, *contenders in named)


@pytest.mark.slow
def test_one_runs_and_leaves_its_evidence(tmp_path: Path, private_tmp: Path) -> None:
    words = ["--rows", "smoke_add4d*", "--metric", "stream", "--contender", "compile", "--ledger", str(tmp_path)]
    script = ROOT / "benchmarks" / "bench_residual_gate_add.py"
    done = subprocess.run(
        [sys.executable, str(script), *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "smoke_add4d" in line)
    assert "%" in line and "x" in line.rpartition("%")[2], line
    assert [r.body["candidate"] for r in Ledger(tmp_path).all_records() if r.kind == "verdict"] == ["compile"]
