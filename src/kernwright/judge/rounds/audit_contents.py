"""AuditContents: the inputs of an audit's calls, each from its own distribution, and the check of their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernwright.core.op import Op
from kernwright.judge.numerics.cases import Case
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.numerics.contracts import Standard
from kernwright.judge.numerics.correctness import case_problems
from kernwright.judge.session.session import Session
from kernwright.tasks.task import Task


class AuditContents:
    """Inputs of several distributions. Unlike in a timed block, each call is held to the full contract."""

    def __init__(self, cases: Sequence[Case], pool: Pool, op: Op) -> None:
        self.cases, self.pool = cases, pool
        self.items = [pool.draw(op, case.row, case.distribution) for case in cases]

    def place(self, session: Any, slots: Sequence[int], first: int = 0) -> None:
        for number, slot in enumerate(slots, first):
            session.fill(slot, self.items[number])

    def problem_of(self, task: Task, session: Session, left: Any, first: int, standard: Standard) -> str | None:
        """Return the first problem with the outputs of the calls from number `first` on."""
        for call in range(left.calls if hasattr(left, "calls") else len(left)):
            outputs, number = session.outputs_of(left, call), first + call
            if problems := case_problems(task, self.cases[number], self.items[number], outputs, self.pool, standard):
                return problems[0]
        return None
