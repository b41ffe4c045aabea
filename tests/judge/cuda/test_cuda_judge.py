"""The whole judge on a GPU: real rows, real candidates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernwright.judge.request import JudgeRequest, judge

pytestmark = [pytest.mark.gpu, pytest.mark.alone, pytest.mark.slow]

FUSED = Path(__file__).parents[3] / "examples" / "candidates" / "fused_triton"
ROW = "plain_s4096_d3072_row-bf16"


def test_a_fused_kernel_beats_the_eager_chain(tmp_path: Path, private_tmp: Path, quiet: Any) -> None:
    request = JudgeRequest(
        task="norm_scale_shift", candidate=FUSED, rows=ROW, device="cuda", ledger=tmp_path, wait_s=60.0
    )
    verdict = judge(request, quiet)
    assert verdict.verdict == "faster", verdict.reasons
    (row,) = verdict.rows
    assert row.metrics["device"].ratio > 1.5  # type: ignore[union-attr]
    assert [kernel.name for kernel in row.kernels["candidate"]] == ["_fused"]
    assert len(row.kernels["baseline"]) > 1
    assert verdict.provenance["hardware"]["kind"] == "cuda"
    assert verdict.provenance["state_after"]["clocks_mhz"]


def test_the_baseline_against_itself_is_neither_wrong_nor_different(
    tmp_path: Path, private_tmp: Path, quiet: Any
) -> None:
    request = JudgeRequest(
        task="norm_scale_shift", candidate=None, against_itself=True, rows=ROW, device="cuda", ledger=tmp_path,
        wait_s=60.0, census=False,
    )  # fmt: skip
    assert judge(request, quiet).verdict in ("same", "inconclusive")


def test_the_ops_that_ship_run_their_own_kernel(tmp_path: Path, private_tmp: Path, quiet: Any) -> None:
    request = JudgeRequest(
        task="norm_scale_shift", candidate=None, contender="kernwright", rows=ROW, device="cuda", ledger=tmp_path,
        wait_s=60.0,
    )  # fmt: skip
    verdict = judge(request, quiet)
    assert verdict.verdict == "faster", verdict.reasons
    (row,) = verdict.rows
    about = verdict.provenance["contender"]
    assert row.ran is not None and row.ran.backend == ("cuda" if about["libraries"] else "triton")
    if row.ran.backend == "cuda":
        assert all("kernwright" in kernel.name for kernel in row.kernels["candidate"])
        assert about["loaded"] and set(about["loaded"]) <= set(about["libraries"])
