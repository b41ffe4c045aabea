"""Triton's interpreter computes with bfloat16 as a GPU does, and honest candidates are right on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernwright.judge.record.verdict import Verdict
from kernwright.judge.request import JudgeRequest, judge
from kernwright.judge.worker.triton_interpreter import float32_of, nearest_bfloat16

EXAMPLE = Path(__file__).parents[3] / "examples" / "candidates" / "fused_triton"
BAD = {"incorrect", "failed", "tampered"}


def test_bits_are_torchs() -> None:
    edges = [0.0, -0.0, 1.0, 1.00390625, 1.01171875, 3.4e38, -3.4e38, 1e-40, float("inf"), -float("inf"), float("nan")]
    values = torch.cat([torch.randn(100_000), torch.randn(1000) * 1e-38, torch.tensor(edges)])
    found = torch.from_numpy(nearest_bfloat16(values.numpy()).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(found.isnan(), values.isnan())
    assert torch.equal(found[~values.isnan()], values.bfloat16()[~values.isnan()])
    again = torch.from_numpy(float32_of(found.view(torch.int16).numpy().view(np.uint16)))
    assert torch.equal(again[~values.isnan()], found.float()[~values.isnan()]), "subnormals too"


def judged(task: Path, candidate: Path, quiet: Any, ledger: Path) -> Verdict:
    return judge(JudgeRequest(task=str(task), candidate=candidate, rows="small", quick=True, ledger=ledger), quiet)


@pytest.mark.slow
def test_the_example_that_ships_is_right_on_a_cpu(
    tmp_path: Path, private_tmp: Path, quiet: Any, write_task: Any, make_row: Any, task_texts: Any
) -> None:
    x, modulation = ({"shape": shape, "dtype": "bf16"} for shape in ([1, "S", "D"], [1, "D"]))
    given = {"x": x, "scale": modulation, "shift": modulation}
    row = make_row("small", "norm_scale_shift", given, {"y": x}, axes={"S": 3, "D": 72})
    toml = task_texts["toml"].replace('definitions = "definitions.py"\n', "")
    task = write_task(tmp_path / "task", toml=toml, rows=[row])
    verdict = judged(task, EXAMPLE, quiet, tmp_path / "ledger")
    assert verdict.verdict not in BAD, verdict.reasons


OPS = """
import torch
from torch import Tensor

from kernwright.core.op import define


@define(outputs=["y", "z", "n"], activations=["x", "r"])
def mix(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    \"\"\"A gated sum, a product of matrices and a count of tokens.\"\"\"
    return r + torch.where(x > 0, x * 3, -x), x @ w, (x > 0).to(x.dtype).sum(-1)
"""
# It computes in bfloat16 itself, without a conversion to float32, as many kernels do.
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, r, w, y, z, n, tokens, WIDTH: tl.constexpr, TOKENS: tl.constexpr):
    token, column = tl.arange(0, TOKENS), tl.arange(0, WIDTH)
    inside = token[:, None] < tokens
    at = token[:, None] * WIDTH + column
    own = tl.load(x + at, inside, 0.0)
    tl.store(y + at, tl.load(r + at, inside) + tl.where(own > 0, own * 3, -own), inside)
    weight = tl.load(w + column[:, None] * WIDTH + column)
    tl.store(z + at, tl.dot(own, weight), inside)
    tl.store(n + token, tl.sum((own > 0).to(tl.bfloat16), 1), token < tokens)


def mix(x, r, w):
    y, z, n = torch.empty_like(x), torch.empty_like(x), x.new_empty(x.shape[0])
    kernel[(1,)](x, r, w, y, z, n, x.shape[0], x.shape[1], triton.next_power_of_2(max(16, x.shape[0])))
    return y, z, n
"""


@pytest.mark.slow
def test_a_kernel_that_computes_in_bfloat16_is_right_on_a_cpu(
    tmp_path: Path, private_tmp: Path, quiet: Any, write_task: Any, write_candidate: Any, make_row: Any
) -> None:
    x, w, n = ({"shape": shape, "dtype": "bf16"} for shape in (["S", "D"], ["D", "D"], ["S"]))
    row = make_row("small", "mix", {"x": x, "r": x, "w": w}, {"y": x, "z": x, "n": n}, axes={"S": 5, "D": 32})
    task = write_task(tmp_path / "task", ops=OPS, rows=[row])
    candidate = write_candidate(tmp_path / "candidate", KERNEL, op="mix", language="triton")
    verdict = judged(task, candidate, quiet, tmp_path / "ledger")
    assert verdict.verdict not in BAD, verdict.reasons
