"""Workload: one frozen row, seen in real models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kernwright.tasks.tensor import AxisName, ConcreteTensor, Size, TensorSpec

Scalar = bool | int | float | str
RowSet = Literal["production", "smoke", "grid"]


class Workload(BaseModel):
    """Tensors, scalars and provenance of one call, and the fewest bytes that the call must move."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    op: str
    set: RowSet = Field(description="production: headline rows; smoke: sized for a CPU; grid: correctness alone")
    models: tuple[str, ...] = ()
    sized_from: str | None = Field(default=None, description="the production row that a smoke row was cut down from")
    axes: dict[AxisName, Size] = Field(default_factory=dict)
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    scalars: dict[str, Scalar] = Field(default_factory=dict)
    bytes_min: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def axes_are_known(self) -> Workload:
        for name, tensor in (self.inputs | self.outputs).items():
            if strangers := tensor.axes - set(self.axes):
                raise ValueError(f"tensor {name} uses axes {sorted(strangers)} that the row does not size")
        return self

    @model_validator(mode="after")
    def outputs_lie_anywhere(self) -> Workload:
        if shifted := [name for name, tensor in self.outputs.items() if tensor.offset]:
            raise ValueError(f"output {shifted[0]} has an offset: where an output lies, who makes it chooses")
        return self

    def concrete_inputs(self) -> dict[str, ConcreteTensor]:
        return {name: tensor.at(self.axes) for name, tensor in self.inputs.items()}

    def concrete_outputs(self) -> dict[str, ConcreteTensor]:
        return {name: tensor.at(self.axes) for name, tensor in self.outputs.items()}

    def results(self, inplace: tuple[str, ...]) -> dict[str, ConcreteTensor]:
        """Return the tensors that a call computes: its outputs, then the inputs that it changes."""
        inputs = self.concrete_inputs()
        return self.concrete_outputs() | {name: inputs[name] for name in inplace if name in inputs}

    def resized(self, sizes: Mapping[str, int]) -> Workload:
        """Return the same call at other sizes. Strided tensors keep their strides, so that they can only shrink."""
        axes = self.axes | dict(sizes)
        return self.model_copy(update={"axes": axes})

    @property
    def has_strided_tensors(self) -> bool:
        return any(t.strides is not None for t in (self.inputs | self.outputs).values())

    def fewest_bytes(self, inplace: tuple[str, ...] = ()) -> int:
        """Return the bytes of reading each input once and writing each output once; a changed input counts twice."""
        read = sum(tensor.bytes for tensor in self.concrete_inputs().values())
        written = sum(tensor.bytes for tensor in self.concrete_outputs().values())
        return read + written + sum(self.concrete_inputs()[name].bytes for name in inplace if name in self.inputs)
