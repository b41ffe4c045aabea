"""A call of another function is not frozen as a call of the op, even if both take the same tensors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kernwright.cli.main import app
from kernwright.tasks.task import load_task

MODEL = """
def norm(x, weight, workspace, prefix="blocks.0", timestep=3, *, eps=1e-6):
    return x * weight
"""
PROGRAM = """
import torch
import model
from kernwright import ops

x, row = torch.ones(2, 6, 64), torch.ones(64)
ops.norm_scale_shift(x, row, row)
ops.norm_scale_shift(x, row, row, backend="torch", out=torch.empty_like(x))
ops.layer_norm(x, row)
model.norm(x, row, torch.ones(9))
"""


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return captures of the program: one with all calls, and one per function."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "model.py").write_text(MODEL)
    (folder / "program.py").write_text(PROGRAM)
    words = ["--op", "norm_scale_shift", "--call", "kernwright.ops:layer_norm", "--call", "model:norm"]
    command = [sys.executable, "-m", "kernwright.cli.main", "capture", *words, "--out", "all.jsonl", "--"]
    done = subprocess.run(
        [*command, sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    header, *calls = (folder / "all.jsonl").read_text().splitlines(keepends=True)
    assert len(calls) == 4
    of = {"norm_scale_shift": "ops:norm_scale_shift", "layer_norm": "ops:layer_norm", "foreign": "model:norm"}
    for name, target in of.items():
        (folder / f"{name}.jsonl").write_text("".join([header, *(line for line in calls if f'{target}"' in line)]))
    return {name: folder / f"{name}.jsonl" for name in ("all", *of)}


def new(source: Path, out: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["task", "new", "mine", "--from", str(source), "--out", str(out), *more])


@pytest.mark.parametrize(
    ("source", "words", "said"),
    [
        ("norm_scale_shift", ["--op", "rms_norm"], "scale, shift, norm_type='layer': is no argument of rms_norm"),
        ("norm_scale_shift", ["--op", "rms_norm", "--map", "weight=scale"], ":2: shift, norm_type='layer': is no"),
        ("norm_scale_shift", ["--op", "rms_modulate"], ":2: norm_type='layer': is no argument of rms_modulate"),
        ("foreign", ["--op", "rms_norm"], "workspace, prefix='blocks.0': is no argument of rms_norm"),
        ("foreign", ["--op", "rms_norm", "--ignore", "prefix"], ": workspace: is no argument"),
        ("foreign", ["--op", "rms_norm", "--ignore", "no", *("--ignore", "prefix", "--ignore", "workspace")],
         "--ignore no: model:norm has no such argument"),
        ("layer_norm", ["--op", "rms_norm"], "holds calls of layer_norm, not of rms_norm"),
        ("all", ["--op", "rms_norm"], "holds calls of several functions"),
    ],
)  # fmt: skip
def test_another_functions_call_is_refused(
    captures: dict[str, Path], tmp_path: Path, source: str, words: list[str], said: str
) -> None:
    result = new(captures[source], tmp_path / "t", *words)
    assert said in str(result.exception)
    assert getattr(result.exception, "remedy", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("source", "words", "op"),
    [
        ("norm_scale_shift", [], "norm_scale_shift"),  # backend, contract and out do not change what is computed.
        ("all", [], "layer_norm"),
        ("foreign", ["--ignore", "workspace", "--ignore", "prefix"], "rms_norm"),
        ("layer_norm", ["--call", "kernwright.ops:layer_norm"], "rms_norm"),
    ],
)
def test_calls_of_the_op_make_rows_and_irrelevant_arguments_are_ignored(
    captures: dict[str, Path], tmp_path: Path, source: str, words: list[str], op: str
) -> None:
    result = new(captures[source], tmp_path / "t", "--op", op, *words)
    assert result.exit_code == 0, result.exception
    (row,) = load_task(tmp_path / "t").select("production")
    assert (row.op, row.axes["D"]) == (op, 64)
    told = " ".join(result.output.split())
    if source == "foreign":
        assert "not used: workspace, prefix, timestep of model:norm" in told
    elif source == "norm_scale_shift":
        assert "not used: backend, out of kernwright.ops:norm_scale_shift" in told, "contract was left at None"
    else:
        assert "not used" not in told
