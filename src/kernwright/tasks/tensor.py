"""TensorSpec: shape, dtype and strides of one tensor of a row, with named axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

DType = Literal["bf16", "fp16", "fp32", "fp64", "i32", "i64", "bool", "u8"]
ITEM_BYTES: dict[str, int] = {
    "bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "i32": 4, "i64": 8, "bool": 1, "u8": 1,
}  # fmt: skip
TORCH_NAMES: dict[str, str] = {
    "bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64",
    "i32": "int32", "i64": "int64", "bool": "bool", "u8": "uint8",
}  # fmt: skip

Size = Annotated[int, Field(ge=1, le=2**40)]
AxisName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]*$")]


class TensorSpec(BaseModel):
    """A tensor as a row writes it: each dimension is a number or the name of one of the row's axes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[Size | AxisName, ...]
    dtype: DType
    strides: tuple[Annotated[int, Field(ge=0)], ...] | None = None

    def at(self, axes: Mapping[str, int]) -> ConcreteTensor:
        shape = tuple(axes[size] if isinstance(size, str) else size for size in self.shape)
        return ConcreteTensor(shape=shape, dtype=self.dtype, strides=self.strides or contiguous_strides(shape))


class ConcreteTensor(BaseModel):
    """A tensor with every size known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """The bytes of its elements: what a kernel must move."""
        return self.elements * self.item_bytes

    @property
    def span_bytes(self) -> int:
        """The bytes from its first to its last element: what it occupies."""
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
