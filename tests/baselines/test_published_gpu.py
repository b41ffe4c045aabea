"""On a GPU: published baselines agree with the reference and run their own kernels, and a fallback is detected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_package import RIGHT, Shelf, sglang_files

from kernwright.baselines.lock import read_lock
from kernwright.baselines.lookup import find_baseline
from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.checks.verification import Verification, verify
from kernwright.judge.device.selection import find_device
from kernwright.judge.request import JudgeRequest, judge
from kernwright.packages.store import Store
from kernwright.tasks.catalog import find_task, list_tasks

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.mark.parametrize("name", read_lock().names())
@pytest.mark.parametrize("task", list(list_tasks()))
def test_a_row_of_every_op_agrees_or_is_declined(name: str, task: str, quiet: Any) -> None:
    """Check one row per op to save time. `kernwright baseline verify --device cuda` checks all rows."""
    loaded, device = find_task(task), find_device("cuda")
    rows = list({row.op: row for row in reversed(loaded.select("production"))}.values())
    baseline = find_baseline(loaded, name)
    try:
        found = list(Verification(baseline, loaded, rows, device, loaded.policy.threads).run(quiet))
    except EnvironmentProblem as missing:
        pytest.skip(str(missing).splitlines()[0])
    failed = {finding.row: finding.reason for finding in found if finding.finding == "failed"}
    assert not failed


OPS = '''
import torch
from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import wide


@define(outputs=["y"], activations=["x"])
def rms_norm(x: Tensor, weight: Tensor, *, eps: float = 1e-6) -> Tensor:
    """x * rsqrt(mean(x^2) + eps) * weight"""
    return (wide(x) * torch.rsqrt(wide(x).pow(2).mean(-1, keepdim=True) + eps) * wide(weight)).to(x.dtype)
'''


@pytest.fixture
def fallen_back(
    shelf: Shelf,
    lock_file: Callable[..., None],
    tmp_path: Path,
    write_task: Callable[..., Path],
    make_row: Callable[..., Any],
    task_texts: Any,
) -> Path:
    """Return a package whose function is right, but runs torch's kernels instead of its own."""
    tree = shelf.tree("sglang", sglang_files(RIGHT), keep=("sglang/*",))
    lock_file(tree)
    Store().fetch(tree, shelf.source, lambda _: None)
    x = {"shape": ["S", 128], "dtype": "bf16"}
    inputs = {"x": x, "weight": {"shape": [128], "dtype": "bf16"}}
    row = make_row("narrow", "rms_norm", inputs, {"y": x}, axes={"S": 4096}, set="production")
    toml = task_texts["toml"].replace('"tiny"', '"norms"')
    return write_task(tmp_path / "norms", toml=toml, ops=OPS, rows=[row])


def test_verification_detects_a_fallback(fallen_back: Path, quiet: Any) -> None:
    (found,) = verify("sglang@1.0", find_task(str(fallen_back)), "all", "cuda", quiet)
    assert found.finding == "failed" and "instead of _rms_norm_tiled_onepass" in found.reason


@pytest.mark.alone  # judged sides need the device to themselves
def test_the_judge_detects_a_fallback(fallen_back: Path, tmp_path: Path, quiet: Any) -> None:
    request = JudgeRequest(
        task=str(fallen_back), candidate=None, baseline="sglang@1.0", device="cuda", quick=True, against_itself=True,
        ledger=tmp_path / "ledger",
    )  # fmt: skip
    (row,) = judge(request, quiet).rows
    assert row.verdict == "failed" and any("instead of _rms_norm_tiled_onepass" in reason for reason in row.reasons)
    assert row.kernels["baseline"]
