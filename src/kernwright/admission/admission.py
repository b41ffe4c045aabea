"""Admission: a task is let in only if its own rows and tolerances reject every mutant of its ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernwright.admission.mutants import Behaviour, Outputs, mutants_of
from kernwright.core.op import Op
from kernwright.judge.numerics.cases import Case
from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.judge.numerics.correctness import check_row
from kernwright.judge.numerics.inputs import Inputs
from kernwright.judge.rounds.progress import Progress
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

SEED = 20_240_229  # admission is about the task, not about secrets: the same answer every time


@dataclass(frozen=True)
class MutantTrial:
    """One mutant against all the rows of its op: the rows it slipped through, and why it fell on the first other."""

    op: str
    mutant: str
    rows: int
    survived: tuple[str, ...]
    rejected_because: str

    @property
    def rejected(self) -> bool:
        """Rejected means on every row on which the mutant is another function at all."""
        return not self.survived and self.rows > 0


@dataclass(frozen=True)
class Admission:
    """The trials of a task's mutants, and the reference's own trial beside them."""

    task: str
    digest: str
    trials: tuple[MutantTrial, ...]
    reference_problems: tuple[str, ...]

    @property
    def admitted(self) -> bool:
        return not self.reference_problems and bool(self.trials) and all(trial.rejected for trial in self.trials)


def admit(task: Task, rows: Sequence[Workload], progress: Progress) -> Admission:
    """Runs every mutant of every row through the judge's correctness check, in this process: mutants are our own."""
    generator = torch.Generator().manual_seed(SEED)
    found: dict[tuple[str, str], dict[str, str | None]] = {}
    reference: list[str] = []
    progress.phase("admission", len(rows))
    for row in rows:
        op = task.op_of(row)
        pool = ContentPool.for_row(row, generator)
        reference += [f"{row.id}: {p}" for p in _problems(task, row, _reference(op, row), pool)]
        for mutant in mutants_of(op, row):
            problems = _problems(task, row, mutant.behaviour, pool)
            found.setdefault((op.name, mutant.name), {})[row.id] = problems[0] if problems else None
        progress.step(row.id)
    trials = tuple(
        MutantTrial(
            op=op,
            mutant=mutant,
            rows=len(outcomes),
            survived=tuple(row for row, problem in outcomes.items() if problem is None),
            rejected_because=next((problem for problem in outcomes.values() if problem), ""),
        )
        for (op, mutant), outcomes in found.items()
    )
    return Admission(task.name, task.digest, trials, tuple(reference))


def _reference(op: Op, row: Workload) -> Behaviour:
    scalars = op.scalar_defaults | row.scalars
    return lambda inputs: op.results(inputs, scalars)


def _problems(task: Task, row: Workload, behaviour: Behaviour, pool: ContentPool) -> list[str]:
    def run(case: Case, inputs: Inputs) -> Outputs:
        return behaviour(inputs)

    return check_row(task, row, run, pool).problems
