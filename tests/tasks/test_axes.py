"""Names of axes are readable, and never wrong about a size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernwright.tasks.axes import name_axes, token_place

Shape = tuple[int, ...]


def spelled(shapes: dict[str, Shape], *more: dict[str, Shape]) -> dict[str, list[int | str]]:
    rows = [shapes, *more]
    names = name_axes(rows, "x", token_place([row["x"] for row in rows]))
    return {t: [names.get((t, place), size) for place, size in enumerate(shape)] for t, shape in shapes.items()}


@pytest.mark.parametrize(
    ("shapes", "names"),
    [
        ({"x": (1, 195, 3072), "w": (3072,)}, {"x": [1, "S", "D"], "w": ["D"]}),
        ({"x": (2, 195, 64), "m": (2, 64)}, {"x": ["B", "S", "D"], "m": ["B", "D"]}),
        ({"x": (1, 4096, 24, 128), "cos": (4096, 64)}, {"x": [1, "S", "H", "D"], "cos": ["S", 64]}),
        ({"x": (64, 64), "w": (64,), "y": (64, 64)}, {"x": ["S", "D"], "w": ["D"], "y": ["S", "D"]}),
        ({"x": (1, 60, 8), "a": (1, 6, 1, 8), "b": (1, 6, 1, 8)}, {"x": [1, "S", "D"], "a": [1, "F", 1, "D"]}),
        ({"x": (1, 60, 8), "a": (1, 6, 1, 8)}, {"a": [1, 6, 1, "D"]}),
        ({"x": (100,), "y": (100,)}, {"x": ["S"], "y": ["S"]}),
        ({"x": (), "y": (5,)}, {"x": [], "y": [5]}),
        ({"x": (1, 1), "y": (1, 1)}, {"x": [1, 1], "y": [1, 1]}),
    ],
)
def test_readable_names(shapes: dict[str, Shape], names: dict[str, list[int | str]]) -> None:
    found = spelled(shapes)
    assert {tensor: found[tensor] for tensor in names} == names


def test_the_token_axis_is_the_one_that_differs_between_rows() -> None:
    """Heads before tokens: in one row only the number of heads tells them apart, in two rows different tokens do."""
    assert spelled({"x": (1, 24, 7, 128)})["x"] == [1, "S", "H", "D"]
    assert spelled({"x": (1, 24, 7, 128)}, {"x": (1, 24, 9, 128)})["x"] == [1, "H", "S", "D"]


def test_a_batch_that_differs_is_no_token_axis() -> None:
    assert spelled({"x": (2, 195, 64)}, {"x": (4, 195, 64)})["x"] == ["B", "S", "D"]
    assert spelled({"x": (195, 1, 64)}, {"x": (189, 1, 64)})["x"] == ["S", 1, "D"]


def test_a_size_equal_by_chance_in_one_row_is_no_axis() -> None:
    found = spelled({"x": (1, 64, 8), "t": (64, 3)}, {"x": (1, 32, 8), "t": (64, 3)})
    assert found["t"] == [64, 3]


shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)


@given(st.fixed_dictionaries({"x": shapes, "a": shapes, "b": shapes}))
def test_a_name_stands_for_one_size(row: dict[str, Shape]) -> None:
    sizes: dict[str, int] = {}
    for (tensor, place), name in name_axes([row], "x", token_place([row["x"]])).items():
        size = row[tensor][place]
        assert size > 1
        assert sizes.setdefault(name, size) == size
