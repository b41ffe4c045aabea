"""One row: sizes, bytes and neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from kernwright.tasks.workload import Workload


@pytest.fixture
def plain(make_row: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return make_row("r", "axpy", {"x": ["S", "D"], "w": ["D"]}, {"y": ["S", "D"]}, axes={"S": 6, "D": 8})


def test_fewest_bytes_are_every_tensor_once_and_in_place_ones_twice(plain: dict[str, Any]) -> None:
    row = Workload.model_validate(plain)
    assert row.fewest_bytes() == 4 * (6 * 8 + 8 + 6 * 8)
    assert row.fewest_bytes(("x",)) == row.fewest_bytes() + 4 * 6 * 8


def test_resizing_moves_the_named_axes_alone(plain: dict[str, Any]) -> None:
    row = Workload.model_validate(plain)
    smaller = row.resized({"S": 5})
    assert smaller.concrete_inputs()["x"].shape == (5, 8)
    assert smaller.concrete_outputs()["y"].shape == (5, 8)
    assert smaller.concrete_inputs()["w"].shape == (8,)
    assert row.axes == {"S": 6, "D": 8}


def test_a_strided_row_is_recognised(plain: dict[str, Any]) -> None:
    assert not Workload.model_validate(plain).has_strided_tensors
    plain["inputs"]["x"]["strides"] = [16, 1]
    strided = Workload.model_validate(plain)
    assert strided.has_strided_tensors
    assert strided.resized({"S": 5}).concrete_inputs()["x"].strides == (16, 1)
    assert strided.fewest_bytes() == Workload.model_validate(plain | {"id": "s"}).fewest_bytes()


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("axes", {"S": 6}, r"uses axes \['D'\]"),
        ("axes", {"S": 0, "D": 8}, "greater than or equal to 1"),
        ("axes", {"s": 6, "D": 8}, "pattern"),
        ("id", "has space", "pattern"),
        ("id", "../up", "pattern"),
        ("set", "training", "production"),
        ("bytes_min", 0, "greater than or equal to 1"),
        ("scalars", {"alpha": [1]}, "scalars"),
    ],
)
def test_a_bad_field_is_refused(plain: dict[str, Any], field: str, value: object, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Workload.model_validate(plain | {field: value})


def test_as_many_strides_as_sizes(plain: dict[str, Any]) -> None:
    plain["inputs"]["x"]["strides"] = [1]
    with pytest.raises(ValidationError, match="2 sizes and 1 strides"):
        Workload.model_validate(plain)


def test_inputs_may_have_an_offset_and_outputs_have_none(plain: dict[str, Any]) -> None:
    plain["inputs"]["x"]["offset"] = 3
    row = Workload.model_validate(plain)
    assert (row.concrete_inputs()["x"].offset, row.resized({"S": 5}).concrete_inputs()["x"].offset) == (3, 3)
    assert row.bytes_min == row.fewest_bytes(), "nobody moves what it begins behind"
    plain["outputs"]["y"]["offset"] = 1
    with pytest.raises(ValidationError, match="output y has an offset"):
        Workload.model_validate(plain)
