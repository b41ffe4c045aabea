"""From a running program to an admitted task, with the commands of a user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kernwright.cli.main import app
from kernwright.tasks.task import load_task

MODEL = """
import torch

def modulate(hidden, factor, *, alpha=2.0):
    return alpha * hidden + factor
"""
PROGRAM = """
import torch
from model import modulate

for tokens in (6, 11, 6):
    modulate(torch.randn(tokens, 64), torch.randn(64))
modulate(torch.randn(2, 64), torch.randn(64), alpha=3)
"""


def process(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernwright.cli.main", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, task_texts: dict[str, str]) -> Path:
    """Return a folder in which the program has been captured."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "model.py").write_text(MODEL)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "ops.py").write_text(task_texts["ops"])
    done = process(
        folder, "capture", "--call", "model:modulate", "--out", "calls.jsonl", "--", sys.executable, "program.py"
    )
    assert done.returncode == 0, done.stderr
    return folder


def new(folder: Path, *more: object) -> Result:
    words = ["task", "new", "mine", "--from", folder / "calls.jsonl", *more]
    return CliRunner().invoke(app, [str(word) for word in words])


def good(folder: Path, out: Path) -> list[Any]:
    return [
        "--op", "axpy", "--definitions", folder / "ops.py", "--map", "x=hidden", "--map", "w=factor",
        "--model", "some-model", "--out", out,
    ]  # fmt: skip


def test_a_program_becomes_a_task_that_is_admitted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    words = ["--op", "axpy", "--definitions", "ops.py", "--map", "x=hidden", "--map", "w=factor", "--model", "some"]
    made = CliRunner().invoke(app, ["task", "new", "mine", "--from", "calls.jsonl", *words])
    assert made.exit_code == 0, (made.output, made.exception)
    assert "tasks/mine: 3 production row(s), 3 smoke row(s)" in made.stdout
    assert made.stdout.splitlines()[-1].strip() == "kernwright task check mine"
    task = load_task(folder / "tasks" / "mine")
    assert {(row.axes["S"], row.scalars["alpha"]) for row in task.select("production")} == {
        (6, 2.0),
        (11, 2.0),
        (2, 3.0),
    }
    assert {row.models for row in task.rows} == {("some",)}
    assert all(row.sized_from in {r.id for r in task.select("production")} for row in task.select("smoke"))
    checked = CliRunner().invoke(app, ["task", "check", "mine"])
    assert checked.exit_code == 0, (checked.output, checked.exception)
    assert "task admitted" in checked.output


def test_an_existing_folder_is_kept_unless_forced(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "t"
    assert new(folder, *good(folder, out)).exit_code == 0
    before = (out / "task.toml").read_bytes()
    refused = new(folder, *good(folder, out), "--title", "Another")
    assert refused.exception is not None and f"{out} exists already" in str(refused.exception)
    assert (out / "task.toml").read_bytes() == before
    assert new(folder, *good(folder, out), "--title", "Another", "--force").exit_code == 0
    assert load_task(out).file.title == "Another"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--op", "axpy"], "--op axpy: no such op"),
        (["--op", "norm_scale_shift", "--call", "model:other"], "calls.jsonl: call: holds no call of model:other"),
        (["--op", "norm_scale_shift", "--map", "x"], "--map x: is not NAME=ARGUMENT"),
        (["--op", "norm_scale_shift", "--map", "q=hidden"], "norm_scale_shift has no q"),
        (["--op", "norm_scale_shift"], "calls.jsonl:2: x: was not captured, but norm_scale_shift needs x"),
    ],
)
def test_what_cannot_be_made_is_said_and_nothing_is_written(
    folder: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    result = new(folder, *words, "--out", tmp_path / "t")
    assert said in str(result.exception)
    assert getattr(result.exception, "remedy", "")
    assert not list(tmp_path.iterdir())


def test_a_name_that_cannot_be_a_task() -> None:
    result = CliRunner().invoke(app, ["task", "new", "My Task", "--from", "x", "--op", "y"])
    assert "'My Task' cannot be a task's name" in str(result.exception)
