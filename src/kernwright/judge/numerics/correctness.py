"""Correctness: the check of every case of a row against the oracle under the op's contract, before timing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.judge.numerics.cases import Case, cases_for
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.numerics.contracts import EAGER_FACTOR, ErrorFigures, Expected, OutputFinding, Standard, compare
from kernwright.judge.numerics.expectations import MAX_SLACK, RMS_SLACK
from kernwright.judge.numerics.inputs import HARSH, RARE_ROWS, Inputs
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

# In a case with few rows, an error of up to this multiple of the eager chain's error may be chance: the eager error of
# a single draw of inputs happens to be small. Such a near miss is compared with the eager error of several draws.
NEAR_MISS_FACTOR = 20.0
MIN_REDRAWS, MAX_REDRAWS = 7, 63
ROWS_TO_SAMPLE = 256  # rows of the last axis that all redraws together should contain

# With these distributions the rounding of one mean dominates all errors of a row, so a draw has only as many
# independent errors as rows. With the others each element has an independent error. The largest of many elements
# varies little, and comparing with many draws would let an inaccurate kernel pass, so those are redrawn only if they
# have few elements.
ONE_ERROR_PER_ROW = ("offset", "rare_offset")
FEW_ELEMENTS = 4096
# Chance may also explain up to this many outliers that exceed the allowed error by at most this factor, in any case.
MAX_NARROW_MISSES, NARROW_MISS_FACTOR = 8, 2.0

# Runs the call of one case on the given inputs and returns its outputs. Every use is an independent call.
Runner = Callable[[Case, Inputs], dict[str, Tensor]]


@dataclass
class CorrectnessReport:
    """The result of all cases of one row."""

    problems: list[str] = field(default_factory=list)
    errors: dict[str, ErrorFigures] = field(default_factory=dict)
    deterministic: bool = True
    cases: int = 0


def check_row(
    task: Task, row: Workload, run: Runner, pool: Pool, *, standard: Standard | None = None
) -> CorrectnessReport:
    """Run the row's cases until one fails. `errors` of the report are those of the row's own size with normal inputs.

    `standard` is the op's contract by default.
    """
    op = task.op_of(row)
    standard = standard or op.contract
    report = CorrectnessReport()
    frozen: dict[str, dict[str, ErrorFigures]] = {}  # by distribution
    for case in cases_for(op, row, task.file.neighbours):
        if standard == "tolerance" and case.distribution in HARSH:
            continue  # published baselines were written for the values that occur in models
        inputs = pool.draw(op, case.row, case.distribution)
        outputs = run(case, inputs)
        report.cases += 1
        figures = _judge_case(task, case, inputs, outputs, report, standard, pool, frozen.get(case.distribution))
        frozen.setdefault(case.distribution, figures)
        if case.row is row and case.distribution == "normal":
            report.errors = figures
            again = run(case, inputs)
            report.deterministic = all(torch.equal(outputs[name], again[name]) for name in outputs)
            if not report.deterministic:
                _judge_case(task, case, inputs, again, report, standard, pool)
        if report.problems:
            break
    return report


def expected_outputs(op: Op, row: Workload, inputs: Inputs) -> dict[str, Expected]:
    """Return oracle and eager chain on these inputs, computed in the judge's process."""
    scalars = op.scalar_defaults | row.scalars
    oracles = op.results(inputs, scalars, precision=torch.float64)
    eagers = op.results(inputs, scalars)
    return {name: Expected.of(oracles[name], eagers[name]) for name in oracles}


def case_problems(
    task: Task, case: Case, inputs: Inputs, outputs: dict[str, Tensor], pool: Pool, standard: Standard | None = None
) -> list[str]:
    """Return the problems of one of many calls under the contract, with slack for the variation between draws.

    The eager chain's largest error in one draw is partly chance. On a single row with a large offset, for example, it
    is the rounding error of one mean. Among many calls some would fail by chance, so a near miss is compared with the
    largest eager error of several draws.
    """
    op = task.op_of(case.row)
    standard = standard or op.contract
    specs = case.row.results(op.inplace)
    problems: list[str] = []
    for name, expected in expected_outputs(op, case.row, inputs).items():
        tolerance = task.tolerance_for(specs[name].dtype)
        finding = compare(outputs[name], _with_slack(expected), standard, tolerance)
        if finding.problem and standard == "close" and _may_be_chance(case, finding):
            several = _over_several_draws(op, case, name, expected, pool)
            finding = compare(outputs[name], _with_slack(several), standard, tolerance)
        if finding.problem:
            problems.append(f"{name} {finding.problem} [{case.label}]")
    return problems


def _with_slack(expected: Expected) -> Expected:
    return replace(expected, eager_max=MAX_SLACK * expected.eager_max, eager_rms=RMS_SLACK * expected.eager_rms)


def _may_be_chance(case: Case, finding: OutputFinding) -> bool:
    """Return whether the eager error of this draw may be too small by chance. That of a single row can be almost 0."""
    figures = finding.figures
    return case.distribution in ONE_ERROR_PER_ROW or figures.max_error <= NEAR_MISS_FACTOR * figures.eager_max


def _is_narrow_miss(finding: OutputFinding) -> bool:
    allowed = EAGER_FACTOR * finding.figures.eager_max
    return 0 < finding.outliers <= MAX_NARROW_MISSES and finding.figures.max_error <= NARROW_MISS_FACTOR * allowed


def _over_several_draws(op: Op, case: Case, name: str, expected: Expected, pool: Pool) -> Expected:
    """Return the expectation with the eager chain's largest error over several draws of inputs."""
    output = case.row.results(op.inplace)[name]
    share = RARE_ROWS if case.distribution == "rare_offset" else 1.0
    rows = max(1.0, share * output.elements / max(1, *output.shape[-1:]))
    for _ in range(min(MAX_REDRAWS, max(MIN_REDRAWS, int(ROWS_TO_SAMPLE / rows)))):
        drawn = expected_outputs(op, case.row, pool.draw(op, case.row, case.distribution))[name]
        expected = expected.widened_to(ErrorFigures(0.0, 0.0, drawn.eager_max, drawn.eager_rms))
    return expected


def _judge_case(
    task: Task,
    case: Case,
    inputs: Inputs,
    outputs: dict[str, Tensor],
    report: CorrectnessReport,
    standard: Standard,
    pool: Pool,
    frozen: dict[str, ErrorFigures] | None = None,
) -> dict[str, ErrorFigures]:
    """Compare one case, append its problems to the report and return its error figures by output.

    `frozen` holds the errors at the row's own size with inputs of the same distribution. The largest error of a few
    hundred elements is a poor estimate of the eager chain's accuracy. A case of one token is therefore allowed the
    eager error of the row's own size. Where one draw is a poor estimate at that size too, a near miss is compared with
    the eager error over several draws. With strong modulation and outliers, a few elements dominate the error and
    draws vary most, so these distributions get slack; the faults that they reveal are far larger.
    """
    figures: dict[str, ErrorFigures] = {}
    op = task.op_of(case.row)
    specs = case.row.results(op.inplace)
    for name, expected in expected_outputs(op, case.row, inputs).items():
        if frozen is not None:
            expected = expected.widened_to(frozen[name])
        if case.distribution in HARSH:
            expected = _with_slack(expected)
        tolerance = task.tolerance_for(specs[name].dtype)
        finding = compare(outputs[name], expected, standard, tolerance)
        figures[name] = finding.figures
        few_errors = case.distribution in ONE_ERROR_PER_ROW or specs[name].elements <= FEW_ELEMENTS
        may_be_chance = (few_errors and _may_be_chance(case, finding)) or _is_narrow_miss(finding)
        if finding.problem and standard == "close" and may_be_chance:
            several = _over_several_draws(op, case, name, expected, pool)
            # One row or a few elements dominate the error of these distributions, so even several draws vary.
            several = _with_slack(several) if case.distribution in (*ONE_ERROR_PER_ROW, *HARSH) else several
            finding = compare(outputs[name], several, standard, tolerance)
        if finding.problem:
            report.problems.append(f"{name} {finding.problem} [{case.label}]")
    return figures
