"""Triton's interpreter rounds as a GPU does, and the example that ships is right on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernwright.judge.request import JudgeRequest, judge
from kernwright.judge.worker.triton_interpreter import nearest_bfloat16

EXAMPLE = Path(__file__).parents[3] / "examples" / "candidates" / "fused_triton"


def test_bits_are_torchs() -> None:
    edges = [0.0, -0.0, 1.0, 1.00390625, 1.01171875, 3.4e38, -3.4e38, 1e-40, float("inf"), -float("inf"), float("nan")]
    values = torch.cat([torch.randn(100_000), torch.randn(1000) * 1e-38, torch.tensor(edges)])
    found = torch.from_numpy(nearest_bfloat16(values.numpy()).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(found.isnan(), values.isnan())
    assert torch.equal(found[~values.isnan()], values.bfloat16()[~values.isnan()])


@pytest.mark.slow
def test_the_example_that_ships_is_right_on_a_cpu(
    tmp_path: Path, private_tmp: Path, quiet: Any, write_task: Any, make_row: Any, task_texts: Any
) -> None:
    x, modulation = ({"shape": shape, "dtype": "bf16"} for shape in ([1, "S", "D"], [1, "D"]))
    given = {"x": x, "scale": modulation, "shift": modulation}
    row = make_row("small", "norm_scale_shift", given, {"y": x}, axes={"S": 3, "D": 72})
    toml = task_texts["toml"].replace('definitions = "definitions.py"\n', "")
    task = write_task(tmp_path / "task", toml=toml, rows=[row])
    request = JudgeRequest(task=str(task), candidate=EXAMPLE, rows="small", quick=True, ledger=tmp_path / "ledger")
    verdict = judge(request, quiet)
    assert verdict.verdict not in ("incorrect", "failed", "tampered"), verdict.reasons
