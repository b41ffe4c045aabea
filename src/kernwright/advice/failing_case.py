"""FailingCase: the inputs and sizes of the call in which a candidate failed, read from the reason of a row."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field

# The label of `judge.numerics.cases.Case` in brackets.
LABEL = re.compile(r"\[(?P<distribution>\w+) inputs(?:, (?P<sizes>\w+=\d+(?: \w+=\d+)*))?\]")


class FailingCase(BaseModel):
    """The inputs and sizes of one call of the correctness check."""

    model_config = ConfigDict(frozen=True)

    distribution: str = Field(description="kind of the inputs: normal, offset, tiny, mixed, ...")
    sizes: dict[str, int] = Field(description="size of each axis; a neighbour of the row's size, or this size itself")


def failing_case(reason: str) -> FailingCase | None:
    """Return the case that a reason names; None if the fault belongs to no case, such as a build error."""
    found = LABEL.search(reason)
    if found is None:
        return None
    sizes = (part.partition("=") for part in (found["sizes"] or "").split())
    return FailingCase(distribution=found["distribution"], sizes={axis: int(size) for axis, _, size in sizes})
