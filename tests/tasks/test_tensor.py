"""Tensors with named axes: their memory, and the bytes that a kernel must move."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pytest import mark, raises

from kernwright.tasks.tensor import ITEM_BYTES, TORCH_NAMES, ConcreteTensor, TensorSpec, contiguous_strides

shapes = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@mark.parametrize("dtype", TORCH_NAMES)
def test_every_dtype_names_the_torch_dtype_of_its_size(dtype: str) -> None:
    assert getattr(torch, TORCH_NAMES[dtype]).itemsize == ITEM_BYTES[dtype]
    assert ConcreteTensor(shape=(3,), dtype=dtype, strides=(1,)).bytes == 3 * ITEM_BYTES[dtype]


@given(shapes)
def test_contiguous_strides_are_torchs(shape: tuple[int, ...]) -> None:
    assert contiguous_strides(shape) == torch.empty(shape).stride()
    tensor = ConcreteTensor(shape=shape, dtype="fp32", strides=contiguous_strides(shape))
    assert tensor.is_contiguous
    assert tensor.bytes == tensor.span_bytes == torch.empty(shape).nbytes


@given(shapes.flatmap(lambda s: st.tuples(st.just(s), st.tuples(*[st.integers(0, 9)] * len(s)))))
def test_a_span_reaches_the_last_element_that_is_addressed(layout: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    shape, strides = layout
    places = {0}
    for size, stride in zip(shape, strides, strict=True):
        places = {place + index * stride for place in places for index in range(size)}
    assert ConcreteTensor(shape=shape, dtype="fp64", strides=strides).span_bytes == (max(places) + 1) * 8


def test_axes_are_filled_in() -> None:
    spec = TensorSpec(shape=(1, "S", "D"), dtype="bf16")
    assert spec.at({"S": 3, "D": 5}) == ConcreteTensor(shape=(1, 3, 5), dtype="bf16", strides=(15, 5, 1))
    strided = TensorSpec(shape=("S", 4), dtype="fp32", strides=(8, 1)).at({"S": 3})
    assert not strided.is_contiguous
    assert (strided.bytes, strided.span_bytes) == (48, 80)


def test_an_offset_is_written_only_where_there_is_one() -> None:
    """Rows that were frozen before offsets existed keep their digest."""
    plain = TensorSpec(shape=("S", 4), dtype="fp32")
    assert plain.model_dump(mode="json") == {"shape": ["S", 4], "dtype": "fp32", "strides": None, "layout": None}
    shifted = plain.model_copy(update={"offset": 3})
    assert shifted.model_dump(mode="json") == plain.model_dump(mode="json") | {"offset": 3}
    assert TensorSpec.model_validate_json(shifted.model_dump_json()) == shifted
    own, wanted = shifted.at({"S": 3}), plain.at({"S": 3})
    assert (own.offset, own.span_bytes, own.bytes) == (3, wanted.span_bytes, wanted.bytes)


@mark.parametrize(
    "bad",
    [
        {"shape": [0], "dtype": "fp32"},
        {"shape": [-1], "dtype": "fp32"},
        {"shape": ["s"], "dtype": "fp32"},
        {"shape": ["S/2"], "dtype": "fp32"},
        {"shape": [2], "dtype": "float32"},
        {"shape": [2], "dtype": "fp32", "strides": [-1]},
        {"shape": [2], "dtype": "fp32", "layout": "row"},
        {"shape": [2], "dtype": "fp32", "offset": -1},
        {"dtype": "fp32"},
    ],
)
def test_a_bad_tensor_is_refused(bad: dict[str, object]) -> None:
    with raises(ValidationError):
        TensorSpec.model_validate(bad)


@mark.parametrize(
    ("size", "wanted"), [("S", 6), ("S+T", 10), ("S*T", 24), ("T+2", 6), ("S*T+2", 26), ("S*2*T", 48), ("T+S*3", 22)]
)
def test_sizes_follow_from_axes(size: str, wanted: int) -> None:
    spec = TensorSpec.model_validate({"shape": [size], "dtype": "fp32"})
    assert spec.at({"S": 6, "T": 4}).shape == (wanted,)
    assert spec.axes <= {"S", "T"}


@mark.parametrize("size", ["2*S", "S+", "S-1", "S/2", "s", "S T", "+S", "__import__"])
def test_sizes_are_sums_of_products_and_nothing_else(size: str) -> None:
    with raises(ValidationError):
        TensorSpec.model_validate({"shape": [size], "dtype": "fp32"})


def test_channels_last_is_dense_at_every_size() -> None:
    spec = TensorSpec.model_validate({"shape": [2, "C", 3, "H", 5], "dtype": "fp32", "layout": "channels_last"})
    for axes in ({"C": 4, "H": 6}, {"C": 7, "H": 1}):
        tensor = spec.at(axes)
        assert tensor.strides == torch.empty(tensor.shape, memory_format=torch.channels_last_3d).stride()
        assert tensor.span_bytes == tensor.bytes


@mark.parametrize(
    ("fields", "message"),
    [
        ({"shape": [2, 3], "strides": [3]}, "2 sizes and 1 strides"),
        ({"shape": [2, 3, 4], "strides": [12, 4, 1], "layout": "channels_last"}, "one of them"),
        ({"shape": [2, 3], "layout": "channels_last"}, "fewer than three"),
    ],
)
def test_strides_and_layouts_that_do_not_fit_are_refused(fields: dict[str, object], message: str) -> None:
    with raises(ValidationError, match=message):
        TensorSpec.model_validate({"dtype": "fp32"} | fields)
