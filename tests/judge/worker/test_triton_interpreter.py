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
def test_the_example_that_ships_is_right_on_a_cpu(tmp_path: Path, private_tmp: Path, quiet: Any) -> None:
    request = JudgeRequest(
        task="norm_scale_shift", candidate=EXAMPLE, rows="smoke_plain_s19_d3072_row-bf16", quick=True, ledger=tmp_path
    )
    verdict = judge(request, quiet)
    assert verdict.verdict not in ("incorrect", "failed", "tampered"), verdict.reasons
