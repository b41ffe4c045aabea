"""A grid is the set of its combinations: each is a valid row, none is timed, and the task's digest covers all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kernwright.core.errors import BadFile
from kernwright.tasks.grid import Grid
from kernwright.tasks.task import Task, load_task

GRID: dict[str, Any] = {
    "id": "grid", "op": "axpy", "axes": {"S": [1, 3], "D": [4, 5, 7]}, "dtypes": ["fp32", "fp16"],
    "scalars": {"a": [0.5, 2.0], "b": [1.0]},
    "inputs": {"x": {"shape": ["S", "D"], "dtype": "*"}, "w": {"shape": ["D"], "dtype": "fp32"}},
    "outputs": {"y": {"shape": ["S", "D*2"], "dtype": "*"}},
}  # fmt: skip


def test_every_combination_is_a_row() -> None:
    rows = list(Grid.model_validate(GRID).rows(()))
    assert len(rows) == len({row.id for row in rows}) == Grid.model_validate(GRID).size == 2 * 3 * 2 * 2
    assert {(row.axes["S"], row.axes["D"], row.inputs["x"].dtype, row.scalars["a"]) for row in rows} == {
        (s, d, dtype, a) for s in (1, 3) for d in (4, 5, 7) for dtype in ("fp32", "fp16") for a in (0.5, 2.0)
    }
    assert {row.set for row in rows} == {"grid"}
    assert {row.inputs["w"].dtype for row in rows} == {"fp32"}
    last = rows[-1]
    assert last.bytes_min == 3 * 7 * 2 + 7 * 4 + 3 * 14 * 2 == last.fewest_bytes()


def test_a_tensor_changed_in_place_counts_twice() -> None:
    plain, inplace = (next(Grid.model_validate(GRID).rows(changed)) for changed in ((), ("x",)))
    assert inplace.bytes_min == plain.bytes_min + 1 * 4 * 4


def test_views_follow_from_the_axes() -> None:
    """The tensor is the second half of each row of a tensor twice as wide, at every size."""
    half = {"shape": ["S", "D"], "dtype": "*", "strides": ["D*2", 1], "offset": "D"}
    rows = list(Grid.model_validate(GRID | {"inputs": GRID["inputs"] | {"x": half}}).rows(()))
    assert {(row.axes["D"], row.inputs["x"].strides, row.inputs["x"].offset) for row in rows} == {
        (d, (2 * d, 1), d) for d in (4, 5, 7)
    }
    dense = list(Grid.model_validate(GRID).rows(()))
    assert [row.id for row in rows] == [row.id for row in dense]
    assert [row.bytes_min for row in rows] == [row.bytes_min for row in dense]


def test_a_choice_is_each_of_its_tensors_in_turn() -> None:
    gate = {"row": {"shape": ["D"], "dtype": "*"}, "full": {"shape": ["S", "D"], "dtype": "fp32"}}
    grid = Grid.model_validate(GRID | {"choices": {"gate": gate}})
    rows = {row.id: row for row in grid.rows(())}
    assert len(rows) == grid.size == 2 * Grid.model_validate(GRID).size
    chosen = rows["grid_S3_D5_2.0_gate-full_fp16"].inputs["gate"]
    assert (chosen.shape, chosen.dtype) == (("S", "D"), "fp32")
    assert rows["grid_S3_D5_2.0_gate-row_fp16"].inputs["gate"].shape == ("D",)


def test_unused_fields_of_a_grid_are_not_written() -> None:
    """Grids that were frozen before views and choices existed keep their digest."""
    written = Grid.model_validate(GRID).model_dump(mode="json")
    assert set(written) == set(GRID)
    assert written["inputs"]["x"] == {"shape": ["S", "D"], "dtype": "*", "layout": None}


@pytest.mark.parametrize(
    "broken",
    [
        {"axes": {"S": [1]}},
        {"axes": {"S": [], "D": [1]}},
        {"dtypes": []},
        {"inputs": {"x": {"shape": ["S"], "dtype": "any"}}},
        {"inputs": {"x": {"shape": ["S"], "dtype": "*", "offset": "T"}}},
        {"inputs": {"x": {"shape": ["S"], "dtype": "*", "strides": ["T"]}}},
        {"inputs": {"x": {"shape": ["S"], "dtype": "*", "strides": [1, 1]}}},
        {"outputs": {"y": {"shape": ["S"], "dtype": "*", "offset": 1}}},
        {"choices": {"gate": {}}},
        {"choices": {"gate": {"full": {"shape": ["T"], "dtype": "*"}}}},
        {"choices": {"gate": {"not a word": {"shape": ["S"], "dtype": "*"}}}},
        {"stranger": 1},
    ],
)
def test_a_grid_that_makes_no_rows_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Grid.model_validate(GRID | broken)


OPS = """
from torch import Tensor
from kernwright.core.op import define

@define(outputs=["y"], activations=["x"])
def twice(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by
"""


@pytest.fixture
def task_with_grid(tmp_path: Path, write_task: Callable[..., Path], make_row: Any) -> Callable[..., Task]:
    def load(**changes: Any) -> Task:
        row = make_row("r", "twice", {"x": ["S"]}, {"y": ["S"]}, axes={"S": 9})
        folder = write_task(tmp_path / "task", ops=OPS, rows=[row])
        grid = {
            "id": "g", "op": "twice", "axes": {"S": [1, 2]}, "dtypes": ["fp32"],
            "inputs": {"x": {"shape": ["S"], "dtype": "*"}}, "outputs": {"y": {"shape": ["S"], "dtype": "*"}},
        }  # fmt: skip
        (folder / "grid.jsonl").write_text(json.dumps(grid | changes) + "\n")
        return load_task(folder)

    return load


def test_a_task_chooses_its_grid_by_name_and_never_by_default(task_with_grid: Callable[..., Task]) -> None:
    task = task_with_grid()
    assert [row.id for row in task.select("grid")] == ["g_S1_fp32", "g_S2_fp32"]
    assert [row.id for row in task.select("g_S2*")] == ["g_S2_fp32"]
    assert "g_S1_fp32" in {row.id for row in task.select("all")}
    assert "grid" not in {row.set for row in task.select("smoke")}


def test_the_digest_covers_the_grid(task_with_grid: Callable[..., Task]) -> None:
    assert task_with_grid().digest != task_with_grid(axes={"S": [1, 3]}).digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op": "thrice"}, "thrice is not defined"),
        ({"scalars": {"strange": [1.0]}}, r"takes no \['strange'\]"),
        ({"dtypes": ["fp32", "fp64"]}, "no tolerance for fp64"),
        ({"axes": {"T": [1]}}, "axes"),
    ],
)
def test_a_grid_is_checked_against_its_op(
    task_with_grid: Callable[..., Task], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadFile, match=message):
        task_with_grid(**changes)
