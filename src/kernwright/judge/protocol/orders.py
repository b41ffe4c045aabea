"""Orders: what the judge tells a worker about the code to run, the row to open and the process itself."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from kernwright.tasks.candidate import BuildFlags, Language, Style
from kernwright.tasks.tensor import ConcreteTensor, DType

SideKind = Literal["eager", "compile", "adapter", "package", "shipped", "candidate"]


class JudgeMessage(BaseModel):
    """Base of everything that the judge sends: immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SideOrders(JudgeMessage):
    """The code of one side and how to load it. Only the fields that its kind needs are set."""

    kind: SideKind
    op: str = ""
    style: Style = "returns"
    definitions: str | None = None  # eager, compile: file of the task's op definitions
    file: str = ""  # adapter, candidate: source file
    function: str = ""  # adapter, candidate: function in that file
    adapters: str = ""  # package: module of the adapters
    tree: str = ""  # package: folder of the unpacked wheel
    paths: tuple[str, ...] = ()  # package: further import folders
    language: Language | None = None  # candidate
    folder: str = ""  # candidate: folder of its sources
    build: BuildFlags = BuildFlags()  # candidate
    build_folder: str = ""  # candidate
    loop: str | None = None  # candidate: library of the native loop for the `device` metric on a CPU

    def for_op(self, op: str) -> SideOrders:
        return self.model_copy(update={"op": op})


class RowSignature(JudgeMessage):
    """The arguments, the outputs and the call style of a side on one row."""

    inputs: tuple[str, ...]
    outputs: tuple[ConcreteTensor, ...]
    scalars: dict[str, Any]
    style: Style


class TensorPlacement(JudgeMessage):
    """One tensor within a slot: byte offset, shape, strides in elements, dtype."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType


class WorkerOrders(JudgeMessage):
    """The settings that a new worker process needs to start."""

    threads: int
    sandbox: str  # `Sandbox.as_argument`
    device: str
    processor: int | None = None  # the processor that the worker is pinned to
    roams: bool = False  # True if the worker may leave that processor to compile
    block_loop: str = ""  # library of the native block loop; empty: Python's loop
    unbuffered: bool = False  # True if prints reach the log at once. A kill ends the worker, so a buffer would be lost


class SanitizerOrders(JudgeMessage):
    """The calls of the program under compute-sanitizer, and the file in which it logs them."""

    side: SideOrders
    sandbox: str  # `Sandbox.as_argument`
    log: str
    task: str  # folder
    rows: tuple[str, ...]  # ids
    device: str
