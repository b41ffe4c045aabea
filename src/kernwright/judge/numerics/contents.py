"""Contents: the inputs for the calls of one half of a quad, and the expected outputs of each call."""

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
    """Inputs for every call of a block. The caller chooses the slot of each in secret."""

    def place(self, session: Any, slots: Sequence[int], first: int = 0) -> None:
        """Write contents into the session's slots, starting with content number `first`."""
        ...


class Contents(PlaceableContents, Protocol):
    """Inputs for every call of a block, with the expected outputs."""

    def problem(self, outputs: Any, first: int = 0, tolerances: Tolerances | None = None) -> str | None:
        """Return the first problem in outputs of calls on these contents, given in the same order; None if correct.

        The outputs must keep the op's contract, or `tolerances` where they are given.
        """
        ...


class Pool(Protocol):
    """A source of contents, seeded with a number that workers never see."""

    def draw(self, op: Op, row: Workload, distribution: str = "normal") -> Inputs: ...

    def contents(self, op: Op, row: Workload, count: int, eager: EagerErrors) -> Contents: ...


@dataclass(frozen=True)
class ListedContents:
    """Contents in host memory, each placed and checked by itself, small enough to stay in the CPU caches."""

    items: tuple[tuple[Inputs, BlockExpectation], ...]

    def place(self, session: Any, slots: Sequence[int], first: int = 0) -> None:
        for number, slot in enumerate(slots, first):
            session.fill(slot, self.items[number][0])

    def problem(self, outputs: Any, first: int = 0, tolerances: Tolerances | None = None) -> str | None:
        for number, returned in enumerate(outputs, first):
            if problem := self.items[number][1].problem(returned, tolerances):
                return f"call {number + 1} of a timed block: {problem}"
        return None
