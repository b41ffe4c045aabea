"""The whole judge on a GPU: real rows, real candidates."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernwright.baselines.lookup import find_baseline
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.contest.worker_spec import baseline_spec
from kernwright.judge.device.selection import find_device
from kernwright.judge.record.verdict import Kernel, MetricResult
from kernwright.judge.request import JudgeRequest, judge, judge_together
from kernwright.judge.rounds.timing import warm_up
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.verify import verify
from kernwright.tasks.catalog import find_task

pytestmark = [pytest.mark.gpu, pytest.mark.alone, pytest.mark.slow]

FUSED = Path(__file__).parents[4] / "examples" / "candidates" / "fused_triton"
MIX_TASK = Path(__file__).parents[3] / "exploits" / "mix_task"
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


def test_a_quick_run_lists_kernels_without_a_profiler(tmp_path: Path, private_tmp: Path, quiet: Any) -> None:
    request = JudgeRequest(
        task="norm_scale_shift", candidate=FUSED, rows=ROW, device="cuda", ledger=tmp_path, wait_s=60.0, quick=True,
        census=True,
    )  # fmt: skip
    (row,) = judge(request, quiet).rows
    assert [kernel.name for kernel in row.kernels["candidate"]] == ["_fused"]
    assert len(row.kernels["baseline"]) > 1 and row.process_calls == 0


SCRIBBLES = """
import torch

old = []


def mix(x, w, *, eps):
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps).mul_(1 + w).tanh_()
    old.append(y)
    if len(old) > 64:
        old.pop(0).zero_()  # of a block before this one
    return y
"""


def test_an_output_that_its_caller_still_holds_is_not_overwritten(
    tmp_path: Path, private_tmp: Path, quiet: Any, write_candidate: Any
) -> None:
    request = JudgeRequest(
        task=str(MIX_TASK), candidate=write_candidate(tmp_path / "scribbles", SCRIBBLES, op="mix"), rows="mix_gpu",
        device="cuda", ledger=tmp_path / "ledger", wait_s=60.0, census=False,
    )  # fmt: skip
    verdict = judge(request, quiet)
    assert verdict.verdict == "incorrect", verdict.reasons
    assert "still holds" in verdict.rows[0].reasons[0]


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


def test_a_graphs_events_lie_around_its_calls_alone(tmp_path: Path, private_tmp: Path) -> None:
    """The events are nodes of the graph, so its launch lies before them. For a few short calls the launch would be a
    quarter of the measured time."""
    device, task = find_device("cuda"), find_task("norm_scale_shift")
    (row,) = task.select("plain_s19_d3072_row-bf16")
    device.begin((row,), tmp_path / "judge")
    group = WorkerGroup({"baseline": baseline_spec(find_baseline(task, "eager"), task, tmp_path / "side")}, 1, device)

    def shown_ns(calls: int) -> float:
        session = group.open("baseline", task.op_of(row), row, calls)
        assert session.open_loop() is None
        session.begin("device")
        warm_up(session, device.pool(row, 1), "device")
        found = []
        for _ in range(5):
            session.prepare()
            session.ready()
            block, _ = session.run(range(calls), with_python=False)
            found.append(session.event_ns())
            assert 0 < found[-1] < block.running_ns
        assert len(session.run_empty_blocks(3)) == 3, "a graph of no calls is launched too"
        session.close()
        return statistics.median(found) / calls

    try:
        many = shown_ns(400)  # runs first, so that clocks are up and kernels are loaded
        assert shown_ns(16) < 1.16 * many
    finally:
        group.dismiss()


def _names(kernels: list[Kernel]) -> list[str]:
    return [kernel.name for kernel in kernels]


def test_many_pairs_at_once_are_judged_as_each_alone(tmp_path: Path, private_tmp: Path, quiet: Any) -> None:
    """The quads differ, and so do the figures. But verdict, kernels and records are the same, and ratios differ by less
    than a tenth. torch.compile gains in the kernels' time only: on a slow host its call takes as long as the whole
    chain."""
    asked = JudgeRequest(
        task="norm_scale_shift", candidate=None, contender="eager", rows=ROW, device="cuda", ledger=tmp_path,
        wait_s=60.0,
    )  # fmt: skip
    together = judge_together([asked, replace(asked, contender="compile")], quiet)
    kinds = [[record.kind for record in Ledger(tmp_path).records(run)] for run in Ledger(tmp_path).runs()]
    assert [own[:3] for own in kinds] == [["run", "correctness", "round"]] * 2
    assert verify(tmp_path) == []
    eager, compiled = [verdict for verdict in together if verdict is not None]
    assert (eager.candidate, compiled.candidate) == ("eager", "compile")
    alone = judge(asked, quiet)
    (row,), (other,), (own,) = eager.rows, compiled.rows, alone.rows
    gained = other.metrics["device"]
    assert isinstance(gained, MetricResult) and gained.outcome == "faster", (gained, compiled.reasons)
    assert eager.verdict in ("same", "inconclusive"), row.reasons
    assert eager.verdict == alone.verdict or "inconclusive" in (eager.verdict, alone.verdict), row.reasons
    for side in ("baseline", "candidate"):
        assert _names(row.kernels[side]) == _names(own.kernels[side])
    assert _names(other.kernels["baseline"]) == _names(row.kernels["baseline"]) != _names(other.kernels["candidate"])
    one, by_itself = row.metrics["device"], own.metrics["device"]
    assert isinstance(one, MetricResult) and isinstance(by_itself, MetricResult), (one, by_itself)
    assert one.ratio == pytest.approx(by_itself.ratio, rel=0.1)


def test_single_calls_may_change_a_large_row_in_place(tmp_path: Path, private_tmp: Path, quiet: Any) -> None:
    """Each call may change its own slot. The next call's check of all slots must accept this."""
    row = "qwen_t4096"  # too large to be staged through the host
    base = JudgeRequest(task="qknorm_rope", candidate=None, rows=row, device="cuda", ledger=tmp_path, wait_s=60.0)
    verdicts = judge_together([replace(base, against_itself=True), replace(base, contender="compile")], quiet)
    for verdict in verdicts:
        assert verdict is not None
        assert verdict.rows[0].verdict in ("faster", "same", "slower", "inconclusive"), verdict.rows[0].reasons


def test_files_of_torch_compile_serve_the_next_judgement(
    tmp_path: Path, private_tmp: Path, quiet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These files refer to each other by full paths, and lie in another folder in every judgement."""
    monkeypatch.setenv("KERNWRIGHT_COMPILED", str(tmp_path / "compiled"))
    request = JudgeRequest(
        task="norm_infer", candidate=None, contender="compile", rows="rms_zimage_4096x128", device="cuda",
        ledger=tmp_path / "ledger", wait_s=60.0, quick=True,
    )  # fmt: skip
    first, second = judge(request, quiet), judge(request, quiet)
    assert not first.provenance["compiled"]
    assert second.provenance["compiled"]["candidate"]["files"] > 0
    assert second.rows[0].verdict != "failed", second.rows[0].reasons
