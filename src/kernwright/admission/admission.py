"""Admission: the check that the rows and tolerances of a task reject every mutant of its ops."""

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

SEED = 20_240_229  # fixed, so that a task always gets the same answer


@dataclass(frozen=True)
class MutantTrial:
    """One mutant on all rows of its op: the rows that did not reject it, and the first reason for a rejection."""

    op: str
    mutant: str
    rows: int
    survived: tuple[str, ...]
    rejected_because: str

    @property
    def rejected(self) -> bool:
        """Whether every row on which the mutant differs from the op rejects it."""
        return not self.survived and self.rows > 0


@dataclass(frozen=True)
class Admission:
    """The trials of the mutants of a task, and the problems of the reference under the same check."""

    task: str
    digest: str
    trials: tuple[MutantTrial, ...]
    reference_problems: tuple[str, ...]

    @property
    def admitted(self) -> bool:
        return not self.reference_problems and bool(self.trials) and all(trial.rejected for trial in self.trials)


def admit(task: Task, rows: Sequence[Workload], progress: Progress) -> Admission:
    """Run every mutant on every row through the judge's correctness check.

    Mutants are our own code, so that they run in this process.
    """
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
