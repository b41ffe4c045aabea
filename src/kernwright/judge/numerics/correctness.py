"""Correctness before time: every case of a row, compared with the oracle under the op's contract."""

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
from kernwright.judge.numerics.inputs import HARSH, SELDOM, Inputs
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

NEAR = 20.0  # an error this many times the eager chain's may still be one draw's luck, where rows are few
REDRAWS, MOST_REDRAWS = 7, 63
ROWS_SEEN = 256  # of the last axis, or as near to it as redraws come: what the chain does to these is no luck

# With these all of a row's error is that of one rounded mean, so that one draw has as many errors as rows. With others
# it has one for each element: of few the largest is luck, and behind that of many draws a coarse kernel could hide.
OF_ONE_MEAN = ("offset", "seldom")
FEW_ELEMENTS = 4096
# A few elements, a little further off than the chain is anywhere, are the luck of a draw too, of however many.
HANDFUL, HARDLY = 8, 2.0

# Runs one case's call on the given inputs and hands back its outputs. Twice the same inputs: two independent calls.
Runner = Callable[[Case, Inputs], dict[str, Tensor]]


@dataclass
class CorrectnessReport:
    """What the cases of one row showed."""

    problems: list[str] = field(default_factory=list)
    errors: dict[str, ErrorFigures] = field(default_factory=dict)
    deterministic: bool = True
    cases: int = 0


def check_row(
    task: Task, row: Workload, run: Runner, pool: Pool, *, quick: bool = False, standard: Standard | None = None
) -> CorrectnessReport:
    """Runs the row's cases until one fails; `errors` are those of the frozen size with normal inputs.

    The standard is the op's contract unless another is asked for.
    """
    op = task.op_of(row)
    standard = standard or op.contract
    report = CorrectnessReport()
    frozen: dict[str, dict[str, ErrorFigures]] = {}  # by distribution
    for case in cases_for(op, row, task.file.neighbours, quick):
        if standard == "tolerance" and case.distribution in HARSH:
            continue  # what others run was made for what models hold
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
    """Oracle and eager chain on these inputs, in the judge's own process."""
    scalars = op.scalar_defaults | row.scalars
    oracles = op.results(inputs, scalars, precision=torch.float64)
    eagers = op.results(inputs, scalars)
    return {name: Expected.of(oracles[name], eagers[name]) for name in oracles}


def case_problems(
    task: Task, case: Case, inputs: Inputs, outputs: dict[str, Tensor], pool: Pool, standard: Standard | None = None
) -> list[str]:
    """What is wrong with one call of many: the contract, with room for what differs from one draw to the next.

    The eager chain's largest error in one draw is partly luck: on a single row with a large offset it is that of one
    rounded mean. With many calls to look at, luck would tell; so a near miss is judged by the largest of several draws.
    """
    op = task.op_of(case.row)
    standard = standard or op.contract
    specs = case.row.results(op.inplace)
    problems: list[str] = []
    for name, expected in expected_outputs(op, case.row, inputs).items():
        tolerance = task.tolerance_for(specs[name].dtype)
        finding = compare(outputs[name], _roomy(expected), standard, tolerance)
        if finding.problem and standard == "close" and _may_be_luck(case, finding):
            several = _by_several_draws(op, case, name, expected, pool)
            finding = compare(outputs[name], _roomy(several), standard, tolerance)
        if finding.problem:
            problems.append(f"{name} {finding.problem} [{case.label}]")
    return problems


def _roomy(expected: Expected) -> Expected:
    return replace(expected, eager_max=MAX_SLACK * expected.eager_max, eager_rms=RMS_SLACK * expected.eager_rms)


def _may_be_luck(case: Case, finding: OutputFinding) -> bool:
    """Whether an error may be that of one draw. Of a single row the chain's own may happen to be next to nothing."""
    figures = finding.figures
    return case.distribution in OF_ONE_MEAN or figures.max_error <= NEAR * figures.eager_max


def _hardly_misses(finding: OutputFinding) -> bool:
    allowed = EAGER_FACTOR * finding.figures.eager_max
    return 0 < finding.beyond <= HANDFUL and finding.figures.max_error <= HARDLY * allowed


def _by_several_draws(op: Op, case: Case, name: str, expected: Expected, pool: Pool) -> Expected:
    """With the eager chain's largest error of several draws: where rows are few, that of one draw is mostly luck."""
    output = case.row.results(op.inplace)[name]
    share = SELDOM if case.distribution == "seldom" else 1.0
    rows = max(1.0, share * output.elements / max(1, *output.shape[-1:]))
    for _ in range(min(MOST_REDRAWS, max(REDRAWS, int(ROWS_SEEN / rows)))):
        drawn = expected_outputs(op, case.row, pool.draw(op, case.row, case.distribution))[name]
        expected = expected.at_least(ErrorFigures(0.0, 0.0, drawn.eager_max, drawn.eager_rms))
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
    """Compares one case. `frozen`: the errors at the frozen size with inputs of the same kind.

    The largest error of a few hundred elements says little of what the eager chain does: a neighbour of one token is
    held to the row's own error, not to the luck of one draw. Where one draw says little at the frozen size too, a near
    miss is held to the chain's error over several draws. Of strong modulation and of outliers a few elements have
    all of the error, and draws differ most: there is room for that, and what these are to show lies far beyond.
    """
    figures: dict[str, ErrorFigures] = {}
    op = task.op_of(case.row)
    specs = case.row.results(op.inplace)
    for name, expected in expected_outputs(op, case.row, inputs).items():
        if frozen is not None:
            expected = expected.at_least(frozen[name])
        if case.distribution in HARSH:
            expected = _roomy(expected)
        tolerance = task.tolerance_for(specs[name].dtype)
        finding = compare(outputs[name], expected, standard, tolerance)
        figures[name] = finding.figures
        few = case.distribution in OF_ONE_MEAN or specs[name].elements <= FEW_ELEMENTS
        luck = (few and _may_be_luck(case, finding)) or _hardly_misses(finding)
        if finding.problem and standard == "close" and luck:
            several = _by_several_draws(op, case, name, expected, pool)
            # All of its error is one row's, or a few elements'.
            several = _roomy(several) if case.distribution in (*OF_ONE_MEAN, *HARSH) else several
            finding = compare(outputs[name], several, standard, tolerance)
        if finding.problem:
            report.problems.append(f"{name} {finding.problem} [{case.label}]")
    return figures
