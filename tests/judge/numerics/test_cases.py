"""The calls that a candidate must get right before it is timed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernwright.core.op import Op, define
from kernwright.judge.numerics.cases import cases_for, neighbour_sizes, secret_case
from kernwright.judge.numerics.inputs import DISTRIBUTIONS
from kernwright.tasks.workload import Workload


def axpy(x: Tensor, w: Tensor) -> Tensor:
    return x + w


OP = define(outputs=["y"], activations=["x"])(axpy)


@pytest.fixture
def row(make_row: Callable[..., dict[str, Any]]) -> Workload:
    return Workload.model_validate(
        make_row("r", "axpy", {"x": ["S", "D"], "w": ["D"]}, {"y": ["S", "D"]}, axes={"S": 96, "D": 64})
    )


def is_prime(n: int) -> bool:
    return n > 1 and not any(n % d == 0 for d in range(2, n))


def test_the_frozen_size_meets_every_distribution(row: Workload) -> None:
    frozen = [case.distribution for case in cases_for(OP, row, ("S", "D")) if case.row is row]
    assert frozen == [name for name in DISTRIBUTIONS if name != "first_activation"], (
        "with one activation there are no others"
    )


def test_several_activations_add_a_first_activation_case(row: Workload) -> None:
    op: Op = define(outputs=["y"], activations=["x", "w"])(axpy)
    assert [case.distribution for case in cases_for(op, row, ())] == list(DISTRIBUTIONS)


def test_rows_of_a_grid_are_their_own_neighbours(row: Workload) -> None:
    grid = row.model_copy(update={"set": "grid"})
    assert all(case.row is grid for case in cases_for(OP, grid, ("S", "D")))


def test_an_op_that_hides_nan_need_not_show_it(row: Workload) -> None:
    op: Op = define(outputs=["y"], activations=["x"], propagates_nonfinite=False)(axpy)
    assert "nonfinite" not in [case.distribution for case in cases_for(op, row, ())]


def test_neighbours_are_prime_odd_and_next(row: Workload) -> None:
    sizes = [c.row.axes for c in cases_for(OP, row, ("S", "D")) if c.row is not row]
    tokens = {a["S"] for a in sizes if a["D"] == 64}
    widths = {a["D"] for a in sizes if a["S"] == 96}
    assert tokens == {89, 95, 97, 1}
    assert widths == {61, 63, 65}
    assert {"S": 89, "D": 61} in sizes, "both axes at once"
    assert all(c.row.concrete_inputs()["x"].shape == tuple(c.row.axes.values()) for c in cases_for(OP, row, ("S",)))


def test_only_named_axes_move(row: Workload) -> None:
    assert {c.row.axes["D"] for c in cases_for(OP, row, ("S", "Q"))} == {64}
    assert all(c.row is row for c in cases_for(OP, row, ()))


def test_a_strided_row_only_shrinks(row: Workload) -> None:
    data = row.model_dump(mode="json")
    data["inputs"]["x"]["strides"] = [64, 1]
    strided = Workload.model_validate(data)
    sizes = [c.row.axes for c in cases_for(OP, strided, ("S", "D"))]
    assert max(a["S"] for a in sizes) == 96
    assert max(a["D"] for a in sizes) == 64
    assert len({tuple(a.values()) for a in sizes}) > 3


def test_a_label_says_what_failed(row: Workload) -> None:
    assert next(cases_for(OP, row, ())).label == "normal inputs, S=96 D=64"
    assert next(cases_for(OP, row.model_copy(update={"axes": {}}), ())).label == "normal inputs"


@given(st.dictionaries(st.sampled_from(["S", "D", "H"]), st.integers(1, 300), max_size=3), st.booleans())
def test_neighbour_sizes(axes: dict[str, int], only_smaller: bool) -> None:
    found = list(neighbour_sizes(axes, only_smaller))
    for sizes in found:
        for axis, size in sizes.items():
            assert size >= 1
            assert size != axes[axis] or len(sizes) > 1
            assert size <= axes[axis] or (size == axes[axis] + 1 and not only_smaller)
    for axis, size in axes.items():
        moved = {sizes[axis] for sizes in found if set(sizes) == {axis}}
        if size > 2:
            prime = max(n for n in range(2, size) if is_prime(n))
            assert prime in moved
            assert size - 1 in moved
        assert (size + 1 in moved) == (not only_smaller)


def secrets(row: Workload, size: int) -> list[int]:
    found = [secret_case(row.resized({"S": size}), ("S",), random.Random(seed)) for seed in range(80)]
    assert all(case is not None and case.row.axes["D"] == row.axes["D"] for case in found)
    assert len({case.distribution for case in found if case}) == 3
    return [case.row.axes["S"] for case in found if case]


def test_a_secret_size_is_not_one_of_the_fixed_sizes(row: Workload) -> None:
    assert set(secrets(row, 4)) == {2, 6, 7, 8}  # neither itself nor 1, 3 and 5
    assert set(secrets(row, 1)) == {1, 2}  # hardly any other size exists
    many = secrets(row, 9000)
    assert len(set(many)) > 60 and min(many) >= 1 and max(many) <= 9064


def test_a_secret_size_takes_hardly_more_memory(row: Workload) -> None:
    large = row.resized({"S": 500, "D": 300})
    drawn = [secret_case(large, ("S", "D"), random.Random(seed)) for seed in range(200)]
    sizes = [case.row.axes for case in drawn if case]
    assert all(own["S"] * own["D"] <= 500 * 300 + 2**17 for own in sizes)
    assert any(own["S"] > 500 for own in sizes) and any(own["D"] > 300 for own in sizes)


def test_where_sizes_cannot_differ_there_is_no_secret_one(row: Workload) -> None:
    rng = random.Random(1)
    assert secret_case(row, (), rng) is None and secret_case(row, ("Q",), rng) is None
    assert secret_case(row.model_copy(update={"set": "grid"}), ("S",), rng) is None
