"""Contents: what the calls of one half of a quad work on, and what each of them must give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernwright.core.op import Op
from kernwright.judge.numerics.contracts import ErrorFigures
from kernwright.judge.numerics.expectations import BlockExpectation, Tolerances
from kernwright.judge.numerics.inputs import Inputs
from kernwright.tasks.workload import Workload

EagerErrors = dict[str, ErrorFigures]


class PlaceableContents(Protocol):
    """As many as a block makes calls. Which slot each lies in is the caller's secret."""

    def place(self, session: Any, slots: Sequence[int], first: int = 0) -> None:
        """Writes contents into the session's slots, from the numbered one on."""
        ...


class Contents(PlaceableContents, Protocol):
    """And what calls on them must leave."""

    def problem(self, outputs: Any, first: int = 0, tolerances: Tolerances | None = None) -> str | None:
        """What is wrong with the outputs that calls on these contents left, in the same order.

        They are held to the op's contract, or to the tolerances given.
        """
        ...


class Pool(Protocol):
    """A source of contents, from a seed that workers never see."""

    def draw(self, op: Op, row: Workload, distribution: str = "normal") -> Inputs: ...

    def contents(self, op: Op, row: Workload, count: int, eager: EagerErrors) -> Contents: ...


@dataclass(frozen=True)
class ListedContents:
    """Contents in the host's memory, one by one: small enough to stay in a processor's caches."""

    items: tuple[tuple[Inputs, BlockExpectation], ...]

    def place(self, session: Any, slots: Sequence[int], first: int = 0) -> None:
        for number, slot in enumerate(slots, first):
            session.fill(slot, self.items[number][0])

    def problem(self, outputs: Any, first: int = 0, tolerances: Tolerances | None = None) -> str | None:
        for number, left in enumerate(outputs, first):
            if problem := self.items[number][1].problem(left, tolerances):
                return f"call {number + 1} of a timed block: {problem}"
        return None
