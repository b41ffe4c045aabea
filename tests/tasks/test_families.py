"""The shipped tasks contain every captured row, and reject every mutant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernwright.admission.admission import admit
from kernwright.judge.record.verdict import RowVerdict
from kernwright.judge.request import JudgeRequest, judge
from kernwright.tasks.catalog import find_task, list_tasks
from kernwright.tasks.policy import TimingPolicy
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

FAMILIES = {
    "qknorm_rope": 10, "norm_infer": 6, "rotary_embedding": 11, "norm_tanh_mul_add": 4, "norm_scale_shift": 39,
    "fuse_scale_shift": 31, "group_norm_silu": 80, "residual_gate_add": 8, "attention_concat_copy": 7,
    "causal_conv3d_cat_pad": 8, "ltx2_rms_adaln": 6, "ltx2_dual_modulate": 12, "ltx2_qknorm_split_rope": 14,
    "ernie_adaln_residual_gate": 3,
}  # fmt: skip
DERIVED = {"wan_vae_rmsnorm_silu": 22, "add_norm": 20, "ltx2_rms_adaln_table": 12}
TASKS = {name: find_task(name) for name in list_tasks() if name in FAMILIES | DERIVED}


def test_every_family_ships_with_all_of_its_rows() -> None:
    production = {name: len(task.select("production")) for name, task in TASKS.items()}
    assert production == FAMILIES | DERIVED
    assert sum(production[name] for name in FAMILIES) == 239


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_rows_name_their_models_or_the_row_they_were_cut_from(task: Task) -> None:
    production = {row.id: row for row in task.select("production")}
    assert all(row.models for row in production.values())
    for smoke in task.select("smoke"):
        original = production[str(smoke.sized_from)]
        assert (smoke.op, smoke.scalars) == (original.op, original.scalars)
        for name, tensor in smoke.inputs.items():
            whole = original.inputs[name]
            assert (tensor.dtype, tensor.layout, len(tensor.shape)) == (whole.dtype, whole.layout, len(whole.shape))
            assert (tensor.strides is None) == (whole.strides is None)
        assert smoke.bytes_min <= original.bytes_min
        assert smoke.bytes_min < 8e6, "sized for a CPU"


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_op_of_a_task_has_a_smoke_row(task: Task) -> None:
    assert {row.op for row in task.select("smoke")} == {row.op for row in task.select("production")}


def test_the_variants_of_scale_shift_that_move_other_bytes_are_kept_apart() -> None:
    rows = {row.id: row for row in TASKS["fuse_scale_shift"].select("production")}
    captured, stand_in = rows["gate_qwen_s4096"], rows["rowmod_qwen_s4096"]
    assert captured.inputs["x"] == stand_in.inputs["x"]
    assert captured.bytes_min > 1.4 * stand_in.bytes_min


def test_scalars_are_those_that_were_captured() -> None:
    """These scalars differ within a family. A row with the wrong scalar would look right otherwise."""
    rope = {row.id: row.scalars["eps"] for row in TASKS["qknorm_rope"].select("production")}
    assert {id_ for id_, eps in rope.items() if eps == 1e-5} == {"zimage_t32", "zimage_t4096", "zimage_t4128"}
    assert {eps for id_, eps in rope.items() if not id_.startswith("zimage")} == {1e-6}
    constants = [row.scalars.get("scale_constant") for row in TASKS["fuse_scale_shift"].select("production")]
    assert (constants.count(0.0), constants.count(1.0)) == (19, 10)
    assert {row.scalars["eps"] for row in TASKS["norm_tanh_mul_add"].select("production")} == {1e-5}


# Test_admission.py admits the smallest rows of the one left out.
QUICK = [name for name in TASKS if name != "norm_scale_shift"]


@pytest.mark.parametrize("name", QUICK)
def test_the_task_is_admitted(name: str, quiet: Any) -> None:
    admission = admit(TASKS[name], TASKS[name].select("smoke"), quiet)
    assert [(t.op, t.mutant, t.survived) for t in admission.trials if not t.rejected] == []
    assert admission.reference_problems == ()
    assert admission.admitted


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_task_is_judged_from_end_to_end(
    name: str, quiet: Any, tmp_path: Path, private_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judge the eager chain against itself on one row of each kind. Whatever the noise, it must not be accused.

    Rows of a kind differ only in sizes. `test_the_task_is_admitted` checks the contents and results of all rows, at all
    sizes that the judge tries. A quick judgement has every input distribution and the same steps.
    """
    # More rounds would only decide between `same` and `inconclusive`, which does not matter here.
    one_round = {"block_ms": 1.0, "first_look": 1, "max_rounds": 1}
    monkeypatch.setattr(
        TimingPolicy, "resolved", lambda own: TimingPolicy(**own.model_dump(exclude_none=True) | one_round)
    )
    smallest: dict[Any, Workload] = {}
    for row in sorted(TASKS[name].select("smoke"), key=lambda row: row.bytes_min):
        smallest.setdefault(kind_of(row), row)
    rows = ",".join(row.id for row in smallest.values())
    request = JudgeRequest(
        task=name, candidate=None, against_itself=True, rows=rows, ledger=tmp_path, quick=True, wait_s=60.0
    )
    verdict = judge(request, quiet)
    assert len(verdict.rows) == len(smallest)
    assert [(row.id, row.reasons) for row in verdict.rows if row.verdict in ("incorrect", "tampered", "failed")] == []
    assert all(_was_timed(row) for row in verdict.rows)


def kind_of(row: Workload) -> Any:
    """Return everything that the judge treats differently: the op, and each tensor's dtype, layout and axes."""
    tensors = {**row.inputs, **row.outputs}
    return row.op, tuple((n, t.dtype, t.layout, t.strides is None, len(t.shape)) for n, t in tensors.items())


def _was_timed(row: RowVerdict) -> bool:
    return row.cases > 0 and {"wall", "stream"} <= set(row.metrics)


ROUNDS_ONCE = """
def once(op):
    return lambda residual, update, gate: (residual.float() + update.float() * gate.float()).to(residual.dtype)
"""


def test_a_baseline_that_rounds_otherwise_is_judged_and_no_candidate_may(
    tmp_path: Path, private_tmp: Path, quiet: Any, write_candidate: Any, write_task: Any, make_row: Any, task_texts: Any
) -> None:
    """residual_gate is exact: like torch.compile, a baseline may round once where the eager chain rounds twice."""
    x = {"shape": [1, "S", "D"], "dtype": "bf16"}
    row = make_row(
        "full", "residual_gate", {"residual": x, "update": x, "gate": x}, {"out": x}, axes={"S": 8, "D": 256}
    )
    toml = task_texts["toml"].replace('definitions = "definitions.py"\n', "")
    task = write_task(tmp_path / "task", toml=toml, rows=[row])
    (task / "baselines.py").write_text(ROUNDS_ONCE)
    once = (
        "def residual_gate(residual, update, gate):\n"
        "    return (residual.float() + update.float() * gate.float()).to(residual.dtype)\n"
    )
    eager = "def residual_gate(residual, update, gate):\n    return residual + update * gate\n"

    def judged(source: str, baseline: str) -> RowVerdict:
        candidate = write_candidate(tmp_path / baseline, source, op="residual_gate")
        fields: dict[str, Any] = {"rows": "full", "ledger": tmp_path / "ledger", "quick": True, "wait_s": 60.0}
        (row,) = judge(JudgeRequest(task=str(task), candidate=candidate, baseline=baseline, **fields), quiet).rows
        return row

    wrong = judged(once, "eager")
    assert wrong.verdict == "incorrect" and "differs in its bits" in wrong.reasons[0]
    assert judged(eager, "once").metrics, "the baseline that rounds once was timed"
