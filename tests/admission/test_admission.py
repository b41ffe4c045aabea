"""A task is admitted only if it rejects every mutant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.admission.admission import Admission, admit
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import load_task

WEAK_OPS = """
from torch import Tensor
from kernwright.core.op import define

@define(outputs=["z"], activations=["x"])
def careless(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 + 0 * y
"""


def test_the_shipped_task_is_admitted_on_its_smallest_rows(quiet: Any) -> None:
    task = find_task("norm_scale_shift")
    rows = task.select("smoke_*_s19_*")
    assert {row.op for row in rows} == {"norm_scale_shift", "residual_norm_scale_shift"}
    admission = admit(task, rows, quiet)
    assert [(t.op, t.mutant) for t in admission.trials if not t.rejected] == []
    assert admission.reference_problems == ()
    assert admission.admitted
    tried = {trial.mutant for trial in admission.trials}
    assert {"zeros", "constant", "stale output", "dropped term (scale)", "dropped term (gate)"} <= tried


@pytest.fixture
def weak(tmp_path: Path, write_task: Callable[..., Path], make_row: Any, quiet: Any, task_texts: Any) -> Admission:
    """Return a task whose op does not depend on one of its inputs. It cannot tell whether a kernel reads that input."""
    rows = [make_row("r", "careless", {"x": ["S", "D"], "y": ["S", "D"]}, {"z": ["S", "D"]}, axes={"S": 4, "D": 9})]
    task = load_task(write_task(tmp_path / "weak", ops=WEAK_OPS, rows=rows))
    return admit(task, task.rows, quiet)


def test_a_task_whose_op_ignores_an_input_is_refused(weak: Admission) -> None:
    assert not weak.admitted
    survivors = {trial.mutant: trial.survived for trial in weak.trials if not trial.rejected}
    assert survivors["dropped term (y)"] == ("r",)
    assert "zeros" not in survivors
    assert weak.reference_problems == ()


def test_a_refusal_names_the_file_and_the_line_to_change(
    weak: Admission, tmp_path: Path, write_task: Callable[..., Path], make_row: Any, quiet: Any, task_texts: Any
) -> None:
    line = WEAK_OPS.splitlines().index("def careless(x: Tensor, y: Tensor) -> Tensor:") + 1
    assert any(f"weak/definitions.py:{line}: " in remedy for remedy in weak.remedies)

    ops = WEAK_OPS.replace("0 * y", "y")
    toml = "\n".join(line for line in task_texts["toml"].splitlines() if not line.startswith("neighbours"))
    rows = [make_row("r", "careless", {"x": ["S", "D"], "y": ["S", "D"]}, {"z": ["S", "D"]}, axes={"S": 64, "D": 64})]
    task = load_task(write_task(tmp_path / "odd", ops=ops, rows=rows, toml='neighbours = ["S"]\n' + toml.lstrip()))
    (remedy,) = admit(task, task.rows, quiet).remedies
    assert "odd/task.toml:1: " in remedy and "D" in remedy


@pytest.mark.parametrize(("body", "said"), [("x.view(x.shape)", "z shares memory"), ("x + y", "fails at S=3")])
def test_a_reference_that_cannot_be_judged_is_named(
    tmp_path: Path, write_task: Callable[..., Path], make_row: Any, quiet: Any, body: str, said: str
) -> None:
    rows = [make_row("r", "careless", {"x": ["S", 9], "y": [4, 9]}, {"z": ["S", 9]}, axes={"S": 4})]
    ops = WEAK_OPS.replace("x * 2 + 0 * y", body)
    task = load_task(write_task(tmp_path / "broken", ops=ops, rows=rows))
    admission = admit(task, task.rows, quiet)
    assert not admission.admitted
    assert said in admission.reference_problems[0]
    assert "broken/" in admission.remedies[0]


def test_the_reason_for_a_rejection_is_reported(weak: Admission) -> None:
    zeros = next(trial for trial in weak.trials if trial.mutant == "zeros")
    assert zeros.rejected
    assert "normal inputs" in zeros.rejected_because


def test_a_reference_that_is_not_a_function_is_refused(
    tmp_path: Path, write_task: Callable[..., Path], make_row: Any, quiet: Any
) -> None:
    """Two calls on the same inputs differ, so no kernel can match the reference."""
    ops = WEAK_OPS.replace("0 * y", "y.new_empty(y.shape).uniform_()").replace(
        "activations", 'contract="exact", activations'
    )
    rows = [make_row("r", "careless", {"x": [4, 9], "y": [4, 9]}, {"z": [4, 9]})]
    task = load_task(write_task(tmp_path / "torn", ops=ops, rows=rows))
    admission = admit(task, task.rows, quiet)
    assert not admission.admitted
    assert "differs in its bits" in admission.reference_problems[0]


def test_a_task_without_trials_is_not_admitted() -> None:
    assert not Admission("t", "d", (), ()).admitted
