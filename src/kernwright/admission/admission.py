"""Admission: the check that the rows and tolerances of a task reject every mutant of its ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.admission.mutants import Behaviour, Outputs, mutants_of
from kernwright.admission.remedies import remedy_for_mutant, remedy_for_reference
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
        """Return True if the mutant is rejected on every row on which it differs from the op."""
        return not self.survived and self.rows > 0


@dataclass(frozen=True)
class Admission:
    """The trials of the mutants of a task, and the problems of the reference under the same check.

    Each remedy names the file and the line to change.
    """

    task: str
    digest: str
    trials: tuple[MutantTrial, ...]
    reference_problems: tuple[str, ...]
    remedies: tuple[str, ...] = ()

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
    remedies: dict[str, None] = {}  # a set that keeps its order
    progress.phase("admission", len(rows))
    for row in rows:
        op = task.op_of(row)
        pool = ContentPool.for_row(row, generator)
        if problems := _reference_problems(task, row, pool):
            reference += [f"{row.id}: {problem}" for problem in problems]
            remedies |= {remedy_for_reference(task, op, problem): None for problem in problems}
            progress.step(row.id)
            continue  # the outcome of a mutant of this reference would mean nothing
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
    for trial in trials:
        if not trial.rejected:
            remedies[remedy_for_mutant(task, task.ops[trial.op], trial.mutant, trial.survived)] = None
    return Admission(task.name, task.digest, trials, tuple(reference), tuple(remedies))


def _reference_problems(task: Task, row: Workload, pool: ContentPool) -> list[str]:
    """Return the problems of the op's reference in the place of a candidate."""
    op = task.op_of(row)
    scalars = op.scalar_defaults | row.scalars
    shared: dict[str, None] = {}
    sizes = ""

    def run(case: Case, inputs: Inputs) -> Outputs:
        nonlocal sizes
        sizes = " ".join(f"{axis}={size}" for axis, size in case.row.axes.items())
        outputs = op.results(inputs, scalars)
        shared.update(dict.fromkeys(_shared_with_inputs(outputs, inputs)))
        return outputs

    try:
        problems = check_row(task, row, run, pool).problems
    except Exception as error:  # the reference is the user's code
        return [f"{op.name} fails at {sizes}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"]
    return [f"{', '.join(shared)} shares memory with an input"] if shared else problems


def _shared_with_inputs(outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> list[str]:
    """Return the outputs that lie in the memory of an input."""
    taken = {tensor.untyped_storage().data_ptr() for tensor in inputs.values()}
    return [name for name, tensor in outputs.items() if tensor.untyped_storage().data_ptr() in taken]


def _problems(task: Task, row: Workload, behaviour: Behaviour, pool: ContentPool) -> list[str]:
    def run(case: Case, inputs: Inputs) -> Outputs:
        return behaviour(inputs)

    return check_row(task, row, run, pool).problems
