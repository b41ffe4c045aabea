"""Contents: what the calls of one half of a quad work on, and what each of them must give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernwright.judge.contract import ErrorFigures
from kernwright.judge.inputs import Inputs
from kernwright.judge.watch import BlockExpectation
from kernwright.ops.definition import Op
from kernwright.tasks.workload import Workload

EagerErrors = dict[str, ErrorFigures]


class Contents(Protocol):
    """Numbered contents. Which slot holds which, and which are called, is the caller's secret."""

    def place(self, session: Any, slots: Sequence[int], numbers: Sequence[int]) -> None:
        """Writes the numbered contents into the session's slots."""
        ...

    def problem(self, numbers: Sequence[int], outputs: Any) -> str | None:
        """What is wrong with the outputs that a session left for these contents, in the order of the calls."""
        ...


class Pool(Protocol):
    """A source of contents, from a seed that workers never see."""

    def draw(self, op: Op, row: Workload, distribution: str = "normal") -> Inputs: ...

    def contents(self, op: Op, row: Workload, count: int, eager: EagerErrors) -> Contents: ...


@dataclass(frozen=True)
class ListedContents:
    """Contents in the host's memory, one by one: small enough to stay in a processor's caches."""

    items: tuple[tuple[Inputs, BlockExpectation], ...]

    def place(self, session: Any, slots: Sequence[int], numbers: Sequence[int]) -> None:
        for slot, number in zip(slots, numbers, strict=True):
            session.fill(slot, self.items[number][0])

    def problem(self, numbers: Sequence[int], outputs: Any) -> str | None:
        for call, (number, left) in enumerate(zip(numbers, outputs, strict=True), 1):
            if problem := self.items[number][1].problem(left):
                return f"call {call} of a timed block: {problem}"
        return None
