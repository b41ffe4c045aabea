"""Grid: every combination of sizes, dtypes, scalars and layouts of an op, checked for correctness."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from kernwright.tasks.tensor import (
    AxisName,
    DType,
    Layout,
    Size,
    SizeOfAxes,
    Stride,
    TensorSpec,
    axes_of,
    size_at,
    without_usual,
)
from kernwright.tasks.workload import Scalar, Workload

THE_DTYPE = "*"  # stands for each of the grid's dtypes in turn
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9]+$")]  # a part of a row's id


class GridTensor(BaseModel):
    """A tensor of a grid, in one dtype or in each of the grid's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[Size | SizeOfAxes, ...]
    dtype: DType | Annotated[str, Field(pattern=r"^\*$")]
    layout: Layout | None = None
    strides: tuple[Stride | SizeOfAxes, ...] | None = Field(
        default=None, description="of a view, in elements: they may follow from the axes, which a row's cannot"
    )
    offset: Stride | SizeOfAxes = 0

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_usual(write(self), self, "strides", "offset")

    @property
    def axes(self) -> set[str]:
        """Return the axes that the sizes depend on."""
        return axes_of((*self.shape, *(self.strides or ()), self.offset))

    def at(self, dtype: DType, axes: Mapping[str, int]) -> TensorSpec:
        return TensorSpec.model_validate(
            {
                "shape": self.shape,
                "dtype": dtype if self.dtype == THE_DTYPE else self.dtype,
                "layout": self.layout,
                "strides": None if self.strides is None else [size_at(stride, axes) for stride in self.strides],
                "offset": size_at(self.offset, axes),
            }
        )


class Grid(BaseModel):
    """The combinations of one op's sizes, dtypes, scalars and choices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    op: str
    axes: dict[AxisName, Annotated[tuple[Size, ...], Field(min_length=1)]]
    dtypes: Annotated[tuple[DType, ...], Field(min_length=1)]
    scalars: dict[str, Annotated[tuple[Scalar, ...], Field(min_length=1)]] = Field(default_factory=dict)
    inputs: dict[str, GridTensor]
    choices: dict[str, Annotated[dict[Word, GridTensor], Field(min_length=1)]] = Field(
        default={}, description="further inputs, each of them one of several tensors in turn"
    )
    outputs: dict[str, GridTensor]
    _first: Workload = PrivateAttr()

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_usual(write(self), self, "choices")

    @model_validator(mode="after")
    def rows_are_valid(self) -> Grid:
        """Validate the first row, which stands for all: they differ only in numbers that were checked."""
        chosen = [(name, tensor) for name, tensors in self.choices.items() for tensor in tensors.values()]
        for name, tensor in [*self.inputs.items(), *chosen, *self.outputs.items()]:
            if strangers := tensor.axes - set(self.axes):
                raise ValueError(f"tensor {name} uses axes {sorted(strangers)} that the grid does not size")
        try:
            self._first = next(self._sized_rows())
        except ValidationError as error:
            raise ValueError(f"its rows are not valid: {error.errors()[0]['msg']}") from None
        return self

    @property
    def first(self) -> Workload:
        """Return the first row. Its `bytes_min` is not computed, because that needs the op."""
        return self._first

    @property
    def size(self) -> int:
        """Return the number of rows."""
        lists = (*self.axes.values(), self.dtypes, *self.scalars.values(), *self.choices.values())
        return math.prod(len(values) for values in lists)

    def rows(self, inplace: tuple[str, ...]) -> Iterator[Workload]:
        for row in self._sized_rows():
            yield row.model_copy(update={"bytes_min": row.fewest_bytes(inplace)})

    def _sized_rows(self) -> Iterator[Workload]:
        for sizes in itertools.product(*self.axes.values()):
            for dtype in self.dtypes:
                for values in itertools.product(*self.scalars.values()):
                    for words in itertools.product(*self.choices.values()):
                        yield self._row(
                            dict(zip(self.axes, sizes, strict=True)), dtype,
                            dict(zip(self.scalars, values, strict=True)), dict(zip(self.choices, words, strict=True)),
                        )  # fmt: skip

    def _row(
        self,
        axes: dict[str, int],
        dtype: DType,
        scalars: dict[str, Scalar],
        chosen: dict[str, str],
    ) -> Workload:
        varied = [str(scalars[name]) for name, values in self.scalars.items() if len(values) > 1]
        varied += [f"{name}-{word}" for name, word in chosen.items()]
        inputs = self.inputs | {name: self.choices[name][word] for name, word in chosen.items()}
        return Workload(
            id="_".join([self.id, *(f"{axis}{size}" for axis, size in axes.items()), *varied, dtype]),
            op=self.op,
            set="grid",
            axes=axes,
            inputs={name: tensor.at(dtype, axes) for name, tensor in inputs.items()},
            outputs={name: tensor.at(dtype, axes) for name, tensor in self.outputs.items()},
            scalars=scalars,
            bytes_min=1,
        )
