"""ToolAnswer: the result of a tool. It is small, structured, and names the next useful calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from kernwright.core.errors import KernwrightError

MOST_PER_PAGE = 100
Offset = Annotated[int, Field(ge=0, description="number of entries to leave out first")]
Limit = Annotated[int, Field(ge=1, le=MOST_PER_PAGE, description="maximum number of entries")]
LedgerPath = Annotated[
    str | None, Field(description="folder or archive of the ledger; default: .kernwright/ledger below the first folder")
]

Entry = TypeVar("Entry")


class NextCall(BaseModel):
    """A tool call that is useful after an answer."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    why: str


class ToolAnswer(BaseModel):
    """The result of a tool."""

    model_config = ConfigDict(frozen=True)

    next: list[NextCall] = Field(default_factory=list, description="the next useful calls, the most useful one first")


class PagedAnswer(ToolAnswer):
    """A part of a list."""

    total: int = Field(description="number of entries of the whole list")
    next_offset: int | None = Field(description="the offset of the next page; null on the last one")


def page_of(entries: Sequence[Entry], offset: int, limit: int) -> tuple[list[Entry], dict[str, Any]]:
    """Return one page of a list, and the fields `total` and `next_offset` of its answer."""
    if offset and offset >= len(entries):
        raise KernwrightError(f"offset {offset} is beyond the list of {len(entries)}", "use a smaller offset")
    end = offset + limit
    return list(entries[offset:end]), {"total": len(entries), "next_offset": end if end < len(entries) else None}


def call(tool: str, why: str, **arguments: Any) -> NextCall:
    """Return a next call. Arguments that are None are left out."""
    given = {name: value for name, value in arguments.items() if value is not None}
    return NextCall(tool=tool, arguments=given, why=why)
