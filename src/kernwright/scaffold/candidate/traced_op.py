"""TracedOp: the computation of an op per row, as values in order. It is recorded by `row_trace.py`.

A value is a row of the last axis ("vector"), or one number per row ("row"). Each value has a dtype as an expression of
the arguments' dtypes, and is rounded to it, as the eager chain does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernwright.core.errors import KernwrightError

ValueKind = Literal["vector", "row"]
REMEDY = (
    "write the kernel by hand (docs/candidates.md), or start from --language python, which copies the eager chain of "
    "any op"
)


class NotPerRow(KernwrightError):
    """A definition that is neither elementwise nor a reduction over the last axis."""

    def __init__(self, op: str, reason: str) -> None:
        super().__init__(f"no kernel can be generated for {op}: {reason}", REMEDY)


@dataclass(frozen=True)
class DtypeOf:
    """A dtype: that of an argument, float32, or the one that two dtypes are promoted to."""

    kind: Literal["argument", "float32", "promoted"]
    name: str = ""
    parts: tuple[DtypeOf, ...] = ()

    def __str__(self) -> str:
        return self.name or self.kind

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DtypeOf):
            raise TypeError(f"its steps depend on whether a dtype is {other}")
        return (self.kind, self.name, self.parts) == (other.kind, other.name, other.parts)

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.parts))


FLOAT32 = DtypeOf("float32")


@dataclass(frozen=True, eq=False)
class RowValue:
    """One step: an argument's element, a scalar, an operation on values, or the mean over a row."""

    op: str
    args: tuple[RowValue | float | str, ...]
    dtype: DtypeOf
    kind: ValueKind
    number: int


@dataclass(frozen=True)
class RowStore:
    """A value that is stored: into an output, or into an argument that the op changes."""

    target: str
    value: RowValue


@dataclass(frozen=True)
class TracedVariant:
    """One variant of an op.

    Attributes:
        given: the optional tensors that are given.
        choices: the values of scalars that are texts or truth values.
        views: for each tensor argument, how it is viewed before it broadcasts: "", "over_tokens" or "new_axis".
    """

    given: tuple[str, ...]
    choices: tuple[tuple[str, str | bool], ...]
    values: tuple[RowValue, ...]
    stores: tuple[RowStore, ...]
    views: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class TracedOp:
    """All variants of an op that its rows use."""

    name: str
    tensors: tuple[tuple[str, bool], ...]  # name, and whether it is optional
    scalars: tuple[tuple[str, bool | int | float | str], ...]
    outputs: tuple[str, ...]
    inplace: tuple[str, ...]
    contract: str
    variants: tuple[TracedVariant, ...]
