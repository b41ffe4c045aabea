"""Forms from judged rows: every judged row has one, and what was not judged has none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from kernwright.campaign.promotion.proven_forms import proven_forms
from kernwright.runtime.call import Call
from kernwright.runtime.promoted.call_form import CallForm, CallForms
from kernwright.tasks.catalog import find_task, list_tasks
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

MOST_ROWS = 60  # rows of an op that are compared; grids have thousands


def call_of(task: Task, row: Workload, **changes: Any) -> Call:
    """Return the call of a row, with tensors without memory."""
    tensors = {
        name: torch.empty_strided(own.shape, own.strides, dtype=getattr(torch, own.torch_dtype_name), device="meta")
        for name, own in row.concrete_inputs().items()
    }
    return Call.of(task.ops[row.op], (), tensors | row.scalars | changes)


@pytest.mark.parametrize("name", sorted(list_tasks()))
def test_every_judged_row_has_a_form(name: str) -> None:
    task = find_task(name)
    for op in task.ops.values():
        rows = [row for row in (*task.rows, *task.grid_rows) if row.op == op.name]
        rows = rows[:: max(1, len(rows) // MOST_ROWS)]
        without_offset = [row for row in rows if not any(spec.offset for spec in row.inputs.values())]
        found = proven_forms(task, op, {row.id for row in rows})
        forms = CallForms(TypeAdapter(tuple[CallForm, ...]).validate_python(found))
        assert {row.id: forms(call_of(task, row)) for row in without_offset} == dict.fromkeys(
            [row.id for row in without_offset]
        )
        for row in without_offset[:3]:
            first = op.activations[0]
            wide = call_of(task, row).tensors[first].to(torch.float64)
            assert forms(call_of(task, row, **{first: wide})) is not None, "no row has float64"


def test_only_an_axis_with_odd_and_even_sizes_is_free() -> None:
    task = find_task("fuse_scale_shift")
    row = next(row for row in task.rows if row.op == "scale_shift" and not row.has_strided_tensors)
    (only,) = proven_forms(task, task.ops["scale_shift"], {row.id})
    free = {axis for axis, values in only["axes"].items() if "least" in values}
    assert free == set(task.file.neighbours) & set(row.axes)
    assert proven_forms(task, task.ops["scale_shift"], set()) == []
