"""Capture: the calls that a program made, by signature. The file has one JSON object per line, a header first."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from kernwright.core.errors import BadFile, EnvironmentProblem
from kernwright.tasks.files import parse_line, read_text, validate

REMEDY = "name a file that kernwright capture wrote"


class CapturedTensor(BaseModel):
    """The metadata of a tensor. Values are never recorded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["tensor"] = "tensor"
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    dtype: str = Field(description="as torch calls it, without the package: bfloat16")
    strides: tuple[int, ...] | None = Field(description="none for a layout that has none")
    offset: Annotated[int, Field(ge=0)] = Field(
        default=0, description="elements from an aligned address to its first, of a view that begins behind others"
    )
    device: str
    requires_grad: bool = False


class CapturedScalar(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["scalar"] = "scalar"
    type: Literal["bool", "int", "float", "str", "none", "dtype", "layout", "memory_format"]
    value: bool | int | float | str | None = Field(
        description="a float that is not finite is written as text, one of torch's constants by its name: bfloat16"
    )


class CapturedList(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["list"] = "list"
    items: tuple[CapturedValue, ...]


class CapturedDict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["dict"] = "dict"
    items: dict[str, CapturedValue] = Field(description="by key; a number's is its text")


class CapturedModule(BaseModel):
    """A torch module, usually `self` of a method: its own tensors, numbers and strings, without its submodules."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["module"] = "module"
    type: str
    items: dict[str, CapturedValue] = Field(description="by attribute")


class CapturedOther(BaseModel):
    """Any other value: only its type is recorded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["other"] = "other"
    type: str


CapturedPlain = CapturedTensor | CapturedScalar | CapturedOther
CapturedNested = CapturedList | CapturedDict | CapturedModule
CapturedValue = Annotated[CapturedPlain | CapturedList | CapturedDict | CapturedModule, Field(discriminator="kind")]


class CapturedArgument(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="the parameter's name; its place where the callable does not tell")
    value: CapturedValue


class CapturedCall(BaseModel):
    """One signature, and the number of calls with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    call: str = Field(description="module:function")
    arguments: tuple[CapturedArgument, ...]
    returns: CapturedValue | None = None
    raised: str | None = Field(default=None, description="the exception that ended it instead")
    count: Annotated[int, Field(ge=1)]

    def values(self) -> dict[str, CapturedPlain]:
        """Return all values by name.

        Items are named `name[0]` and `name[key]`, attributes of a module `self.weight`, results `return`.
        """
        found = dict(pair for argument in self.arguments for pair in _flat(argument.name, argument.value))
        return found | (dict(_flat("return", self.returns)) if self.returns is not None else {})


def _flat(name: str, value: CapturedPlain | CapturedNested) -> Iterator[tuple[str, CapturedPlain]]:
    if isinstance(value, CapturedList):
        for place, item in enumerate(value.items):
            yield from _flat(f"{name}[{place}]", item)
    elif isinstance(value, CapturedDict):
        for key, item in value.items.items():
            yield from _flat(f"{name}[{key}]", item)
    elif isinstance(value, CapturedModule):
        for attribute, item in value.items.items():
            yield from _flat(f"{name}.{attribute}", item)
    else:
        yield name, value


class CaptureHeader(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["kernwright-capture"] = "kernwright-capture"
    version: Literal[1] = 1
    program: str = Field(description="the program's name, without its place and its arguments")
    targets: tuple[str, ...] = Field(description="the callables that were asked for")
    python: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()
    processes: int = Field(default=0, description="those that met one of the callables")
    wrapped: tuple[str, ...] = Field(default=(), description="the callables that were found")
    not_kept: dict[str, int] = Field(default_factory=dict, description="calls beyond the signatures that are kept")
    problems: tuple[str, ...] = ()
    ending: int | None = Field(
        default=None,
        description="the program's exit status, or minus the number of the signal that ended it; None if unknown",
    )

    @property
    def failure(self) -> str | None:
        """Return the exit status or the signal with which the program failed, in words; None if it succeeded."""
        if not self.ending:
            return None
        if self.ending < 0:
            return f"was ended by {_signal_name(-self.ending)}"
        return f"failed with exit status {self.ending}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


class Capture(BaseModel):
    """The content of a capture file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    header: CaptureHeader
    calls: tuple[CapturedCall, ...]

    def of(self, call: str) -> tuple[CapturedCall, ...]:
        return tuple(captured for captured in self.calls if captured.call == call)

    @property
    def counts(self) -> dict[str, int]:
        """The number of calls per callable, including signatures that were not kept."""
        found = {target: self.header.not_kept.get(target, 0) for target in self.header.targets}
        for captured in self.calls:
            found[captured.call] = found.get(captured.call, 0) + captured.count
        return found


def read_capture(path: Path) -> Capture:
    lines = read_text(path, REMEDY).splitlines()
    if not lines:
        raise BadFile(path, "", "is empty", REMEDY)
    header = validate(f"{path}:1", CaptureHeader, parse_line(f"{path}:1", lines[0]))
    calls = tuple(
        validate(f"{path}:{number}", CapturedCall, parse_line(f"{path}:{number}", line))
        for number, line in enumerate(lines[1:], 2)
        if line.strip()
    )
    return Capture(header=header, calls=calls)


def write_capture(capture: Capture, path: Path) -> None:
    """Write a capture file completely or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            for model in (capture.header, *capture.calls):
                file.write(model.model_dump_json() + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise EnvironmentProblem(
            f"{path} cannot be written: {error.strerror}", "make room or choose another --out"
        ) from None
