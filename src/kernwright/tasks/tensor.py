"""TensorSpec: shape, dtype and strides of one tensor of a row, with named axes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

DType = Literal["bf16", "fp16", "fp32", "fp64", "i32", "i64", "bool", "u8"]
ITEM_BYTES: dict[str, int] = {
    "bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "i32": 4, "i64": 8, "bool": 1, "u8": 1,
}  # fmt: skip
TORCH_NAMES: dict[str, str] = {
    "bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64",
    "i32": "int32", "i64": "int64", "bool": "bool", "u8": "uint8",
}  # fmt: skip

Size = Annotated[int, Field(ge=1, le=2**40)]
Stride = Annotated[int, Field(ge=0)]
AxisName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]*$")]
# Sums of products of axes and numbers: "S", "A+B" (the size of a concatenation), "F*P" (frames of P tokens), "T+2".
SizeOfAxes = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]*([+*]([A-Z][A-Za-z0-9]*|[0-9]+))*$")]
Layout = Literal["channels_last"]


class TensorSpec(BaseModel):
    """A tensor as a row writes it: each dimension is a number, or follows from the row's axes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[Size | SizeOfAxes, ...]
    dtype: DType
    strides: tuple[Stride, ...] | None = Field(
        default=None, description="in elements, as captured; they stay at other sizes, so those can only be smaller"
    )
    layout: Layout | None = Field(default=None, description="a dense order other than the shape's own, at every size")
    offset: Stride = Field(
        default=0, description="elements from an aligned address to its first: it is a view that begins behind them"
    )

    @model_validator(mode="after")
    def strides_fit(self) -> TensorSpec:
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise ValueError(f"has {len(self.shape)} sizes and {len(self.strides)} strides")
        if self.strides is not None and self.layout is not None:
            raise ValueError("has strides and a layout: one of them says it all")
        if self.layout == "channels_last" and len(self.shape) < 3:
            raise ValueError("is channels_last with fewer than three dimensions")
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_usual(write(self), self, "offset")

    @property
    def axes(self) -> set[str]:
        """Return the axes from which the sizes follow."""
        return axes_of(self.shape)

    def at(self, axes: Mapping[str, int]) -> ConcreteTensor:
        shape = tuple(size_at(size, axes) for size in self.shape)
        strides = self.strides or self._dense_strides(shape)
        return ConcreteTensor(shape=shape, dtype=self.dtype, strides=strides, offset=self.offset)

    def _dense_strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.layout is None:
            return contiguous_strides(shape)
        batch, channels, *places = shape
        outer = contiguous_strides((batch, *places, channels))
        return (outer[0], outer[-1], *outer[1:-1])


def without_usual(written: dict[str, Any], model: BaseModel, *names: str) -> dict[str, Any]:
    """Leave out fields with their default values, so that a new field keeps the digests of tasks that do not use it."""
    fields = type(model).model_fields
    usual = {name for name in names if getattr(model, name) == fields[name].default}
    return {name: value for name, value in written.items() if name not in usual} if usual else written


def axes_of(sizes: Iterable[int | str]) -> set[str]:
    """Return the axes that sizes depend on."""
    return {name for size in sizes if isinstance(size, str) for name in _axes_in(size)}


@lru_cache(maxsize=1024)
def _axes_in(size: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[A-Z][A-Za-z0-9]*", size))


def size_at(size: int | str, axes: Mapping[str, int]) -> int:
    if isinstance(size, int):
        return size
    return sum(
        math.prod(int(word) if word.isdigit() else axes[word] for word in product.split("*"))
        for product in size.split("+")
    )


class ConcreteTensor(BaseModel):
    """A tensor with every size known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """Return the bytes of the elements, which a kernel must move."""
        return self.elements * self.item_bytes

    @property
    def span_bytes(self) -> int:
        """Return the bytes from the first to the last element. The offset before the first element does not count."""
        if self.elements == 0:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.item_bytes

    @property
    def is_contiguous(self) -> bool:
        return self.strides == contiguous_strides(self.shape)

    @property
    def torch_dtype_name(self) -> str:
        return TORCH_NAMES[self.dtype]


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
