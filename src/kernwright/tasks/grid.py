"""Grid: many small rows written as a few: every combination of sizes, dtypes and scalars, for correctness alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kernwright.tasks.tensor import AxisName, DType, Layout, Size, SizeOfAxes, TensorSpec
from kernwright.tasks.workload import Scalar, Workload

THE_DTYPE = "*"  # stands for each of the grid's dtypes in turn


class GridTensor(BaseModel):
    """A tensor of a grid, in one dtype or in each of the grid's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[Size | SizeOfAxes, ...]
    dtype: DType | Annotated[str, Field(pattern=r"^\*$")]
    layout: Layout | None = None

    def at(self, dtype: DType) -> TensorSpec:
        own = dtype if self.dtype == THE_DTYPE else self.dtype
        return TensorSpec.model_validate({"shape": self.shape, "dtype": own, "layout": self.layout})


class Grid(BaseModel):
    """The combinations of one op's sizes, dtypes and scalars."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    op: str
    axes: dict[AxisName, Annotated[tuple[Size, ...], Field(min_length=1)]]
    dtypes: Annotated[tuple[DType, ...], Field(min_length=1)]
    scalars: dict[str, Annotated[tuple[Scalar, ...], Field(min_length=1)]] = Field(default_factory=dict)
    inputs: dict[str, GridTensor]
    outputs: dict[str, GridTensor]

    @model_validator(mode="after")
    def rows_are_valid(self) -> Grid:
        """The first row stands for all: they differ only in numbers that were checked one by one."""
        try:
            next(self.rows(()))
        except ValidationError as error:
            raise ValueError(f"its rows are not valid: {error.errors()[0]['msg']}") from None
        return self

    @property
    def size(self) -> int:
        """How many rows it stands for."""
        return math.prod(len(values) for values in (*self.axes.values(), self.dtypes, *self.scalars.values()))

    def rows(self, inplace: tuple[str, ...]) -> Iterator[Workload]:
        for sizes in itertools.product(*self.axes.values()):
            for dtype in self.dtypes:
                for values in itertools.product(*self.scalars.values()):
                    yield self._row(
                        dict(zip(self.axes, sizes, strict=True)), dtype, dict(zip(self.scalars, values, strict=True)),
                        inplace,
                    )  # fmt: skip

    def _row(
        self, axes: dict[str, int], dtype: DType, scalars: dict[str, Scalar], inplace: tuple[str, ...]
    ) -> Workload:
        varied = [str(scalars[name]) for name, values in self.scalars.items() if len(values) > 1]
        row = Workload(
            id="_".join([self.id, *(f"{axis}{size}" for axis, size in axes.items()), *varied, dtype]),
            op=self.op,
            set="grid",
            axes=axes,
            inputs={name: tensor.at(dtype) for name, tensor in self.inputs.items()},
            outputs={name: tensor.at(dtype) for name, tensor in self.outputs.items()},
            scalars=scalars,
            bytes_min=1,
        )
        return row.model_copy(update={"bytes_min": row.fewest_bytes(inplace)})
