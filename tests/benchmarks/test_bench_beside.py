"""The comparison of all rows by hand, as far as it runs without a GPU."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernwright.tasks.catalog import find_task

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench_beside.py"


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    yield importlib.import_module("bench_beside")


def test_sides_are_called_as_the_judge_calls_them(beside: ModuleType) -> None:
    task = find_task("fuse_scale_shift")
    row = next(row for row in task.select("smoke") if row.op == "scale_shift")
    asked = argparse.Namespace(baseline=["eager", "compile"], compile_all=False, triton=False)
    sides = beside.sides_of(task, row, asked)
    assert list(sides) == ["kernwright", "eager", "compile"]  # For an exact op, torch.compile is the peer to beat.
    inputs = [torch.randn(t.shape).to(getattr(torch, t.torch_dtype_name)) for t in row.concrete_inputs().values()]
    assert torch.equal(sides["kernwright"](*inputs), sides["eager"](*inputs))

    norms = find_task("norm_scale_shift")
    row = norms.select("smoke")[0]
    assert list(beside.sides_of(norms, row, asked)) == ["kernwright", "eager"]
    asked.compile_all = True
    assert "compile" in beside.sides_of(norms, row, asked)


def test_a_line_has_the_ratio_of_every_sides_time_to_ours(beside: ModuleType) -> None:
    found = {
        "row": "s19",
        "bytes": 2_000_000,
        "copy": 1.5,
        "device": {"kernwright": 2.0, "sglang@0.5.23": 3.0},
        "wall": {"kernwright": 10.0, "sglang@0.5.23": 25.0},
        "problems": {"compile": "RuntimeError: no"},
    }
    words = beside.line(found).split()
    assert words[:4] == ["s19", "2.0", "2.00", "75%"]
    assert words[4:8] == ["sglang", "1.500", "wall", "2.50"] and words[-1] == "no"
    ours_fell = {**found, "device": {"compile": 3.0}, "wall": {"compile": 9.0}, "problems": {"kernwright": "it fell"}}
    assert beside.line(ours_fell).endswith("kernwright: it fell")  # The comparison goes on after a failed side.


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(beside: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [str(SCRIPT)])
    with pytest.raises(SystemExit, match="no CUDA device"):
        beside.main()
