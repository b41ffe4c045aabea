"""Correctness: the check of every case of a row against the oracle under the op's contract, before timing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.judge.numerics.cases import Case, cases_for
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.numerics.contracts import (
    EAGER_FACTOR,
    ErrorFigures,
    Expected,
    OutputFinding,
    Standard,
    compare,
    same_bits,
)
from kernwright.judge.numerics.expectations import MAX_SLACK, RMS_SLACK
from kernwright.judge.numerics.inputs import HARSH, RARE_ROWS, Inputs
from kernwright.tasks.task import Task
from kernwright.tasks.tensor import ConcreteTensor
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

# An honest implementation may exceed the eager chain's error by chance: the eager error of the draw is small. Such a
# near miss is a fault only if it repeats with this many further draws of inputs.
REPEATS = 3
FEW_ROWS = 16  # near misses of the RMS error on an H200 had at most 12 rows of the last axis
SHARED_ULPS = 2.0  # roundings that rows shared gave RMS errors of 0.8 to 1.6 ulp on an H200
FEW_ULPS = 4.0  # an RMS error of a few roundings may be chance, even where the eager chain has almost none

# Runs the call of one case on the given inputs and returns its outputs. Every use is an independent call.
Runner = Callable[[Case, Inputs], dict[str, Tensor]]


@dataclass
class CorrectnessReport:
    """The result of all cases of one row."""

    problems: list[str] = field(default_factory=list)
    errors: dict[str, ErrorFigures] = field(default_factory=dict)
    deterministic: bool = True
    cases: int = 0
    repeated: int = 0  # cases that were run again with fresh inputs, because their error may have been chance


@dataclass(frozen=True)
class CaseFinding:
    """The comparison of one case: error figures by output, problems, and whether all of these may be chance."""

    figures: dict[str, ErrorFigures]
    problems: list[str]
    may_be_chance: bool


def check_row(
    task: Task, row: Workload, run: Runner, pool: Pool, *, standard: Standard | None = None
) -> CorrectnessReport:
    """Run the row's cases until one fails. `errors` of the report are those of the row's own size with normal inputs.

    `standard` is the op's contract by default.
    """
    op = task.op_of(row)
    standard = standard or op.contract
    report = CorrectnessReport()
    frozen: dict[str, dict[str, ErrorFigures]] = {}  # the key is the distribution
    for case in cases_for(op, row, task.file.neighbours):
        if standard == "tolerance" and case.distribution in HARSH:
            continue  # published baselines were written for the values that occur in models
        inputs = pool.draw(op, case.row, case.distribution)
        outputs = run(case, inputs)
        report.cases += 1
        judged = partial(_judge_case, task, case, standard=standard, pool=pool, frozen=frozen.get(case.distribution))
        found = judged(inputs, outputs)
        report.problems += _confirmed(op, case, found, inputs, outputs, run, pool, judged, report)
        frozen.setdefault(case.distribution, found.figures)
        if case.row is row and case.distribution == "normal":
            report.errors = found.figures
            again = run(case, inputs)
            report.deterministic = all(torch.equal(outputs[name], again[name]) for name in outputs)
            if not report.deterministic:
                report.problems += judged(inputs, again).problems
        if report.problems:
            break
    return report


def _confirmed(
    op: Op,
    case: Case,
    found: CaseFinding,
    inputs: Inputs,
    outputs: dict[str, Tensor],
    run: Runner,
    pool: Pool,
    judged: Callable[[Inputs, dict[str, Tensor]], CaseFinding],
    report: CorrectnessReport,
) -> list[str]:
    """Return the problems of a case, without those that are chance.

    Chance lies in the inputs. So the call must give the same bits on the same inputs again: a side that is wrong in
    only some calls does not. The call must also be accurate on one of several fresh draws.
    """
    if not found.may_be_chance:
        return found.problems
    report.repeated += 1
    again = run(case, inputs)
    if not all(same_bits(again[name], outputs[name]) for name in outputs):
        return found.problems
    for _ in range(REPEATS):
        fresh = pool.draw(op, case.row, case.distribution)
        repeated = judged(fresh, run(case, fresh))
        if not repeated.problems:
            return []
        if not repeated.may_be_chance:
            return repeated.problems
    return [f"{problem}, and again on {REPEATS} of {REPEATS} fresh inputs" for problem in found.problems]


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
        if finding.fault == "nonfinite" and standard != "exact":
            expected = _without_added_nans(op, case.row, name, inputs, expected)
            finding = compare(outputs[name], _with_slack(expected), standard, tolerance)
        if finding.problem and standard == "close" and _may_be_chance(case, finding):
            several = _over_several_draws(op, case, name, expected, pool)
            finding = compare(outputs[name], _with_slack(several), standard, tolerance)
        if finding.problem:
            problems.append(f"{name} {finding.problem} [{case.label}]")
    return problems


def _without_added_nans(op: Op, row: Workload, name: str, inputs: Inputs, expected: Expected) -> Expected:
    """Return the expectation without NaNs that a GPU's kernels add to the chain.

    Torch's CUDA kernel for RMS norms of float64, and of widths that are not a multiple of 4, computes a mean and a
    variance about it. An infinity in a row makes both NaN, and with them the whole row. By the chain's formula, which
    torch computes on a CPU and in its other CUDA kernel, only the infinite element becomes NaN. Where the chain is
    finite on a CPU, its values there are expected.
    """
    if expected.oracle.device.type == "cpu" or expected.finite is None:
        return expected
    return _with_values_of(expected, expected_outputs(op, row, {key: own.cpu() for key, own in inputs.items()})[name])


def _with_values_of(expected: Expected, formula: Expected) -> Expected:
    """Return the expectation with the formula's values where they are finite and those of the chain are NaN."""
    finite = formula.finite if formula.finite is not None else torch.ones_like(formula.oracle, dtype=torch.bool)
    added = finite.to(expected.oracle.device) & torch.isnan(expected.oracle) & torch.isnan(expected.eager)
    oracle = torch.where(added, formula.oracle.to(expected.oracle.device), expected.oracle)
    return Expected.of(oracle, torch.where(added, formula.eager.to(expected.eager.device), expected.eager))


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
    *,
    standard: Standard,
    pool: Pool,
    frozen: dict[str, ErrorFigures] | None,
) -> CaseFinding:
    """Compare one case.

    `frozen` holds the errors at the row's own size with inputs of the same distribution. The largest error of a few
    hundred elements is a poor estimate of the eager chain's accuracy. A case of one token is therefore allowed the
    eager error of the row's own size. Where one draw is a poor estimate at that size too, a near miss is compared with
    the eager error over several draws. With strong modulation and outliers, a few elements dominate the error and
    draws vary most, so these distributions get slack; the faults that they reveal are far larger.
    """
    figures: dict[str, ErrorFigures] = {}
    problems: list[str] = []
    may_be_chance = True
    op = task.op_of(case.row)
    specs = case.row.results(op.inplace)
    for name, expected in expected_outputs(op, case.row, inputs).items():
        tolerance = task.tolerance_for(specs[name].dtype)
        allowing = partial(_allowed_in, case, None if frozen is None else frozen[name])
        finding = compare(outputs[name], allowing(expected), standard, tolerance)
        if finding.fault == "nonfinite":
            expected = _without_added_nans(op, case.row, name, inputs, expected)
            finding = compare(outputs[name], allowing(expected), standard, tolerance)
        figures[name] = finding.figures
        few_errors = case.distribution in ONE_ERROR_PER_ROW or specs[name].elements <= FEW_ELEMENTS
        one_draw_misleads = (few_errors and _may_be_chance(case, finding)) or _is_narrow_miss(finding)
        if finding.problem and standard == "close" and one_draw_misleads:
            several = _over_several_draws(op, case, name, allowing(expected), pool)
            # One row or a few elements dominate the error of these distributions, so even several draws vary.
            several = _with_slack(several) if case.distribution in (*ONE_ERROR_PER_ROW, *HARSH) else several
            finding = compare(outputs[name], several, standard, tolerance)
        if finding.problem:
            problems.append(f"{name} {finding.problem} [{case.label}]")
            may_be_chance &= _has_few_errors(specs[name], finding) and _must_repeat(case, finding, standard)
    return CaseFinding(figures, problems, bool(problems) and may_be_chance)


def _has_few_errors(output: ConcreteTensor, finding: OutputFinding) -> bool:
    """Return whether chance can explain a near miss: the output has few rows, or few elements exceed the error allowed.

    Each row has an error of its own. The RMS error of many rows hardly varies between draws, so an excess is real.
    Errors of at most two float32 roundings, none of them far beyond the chain's, are the exception: rows may share
    them. If the same huge shift is added to all tokens before a norm, for example, they share the rounding of one root.
    """
    figures = finding.figures
    rows = output.elements / max(1, *output.shape[-1:])
    is_close = figures.max_error <= NARROW_MISS_FACTOR * EAGER_FACTOR * figures.eager_max
    is_shared = output.dtype == "fp32" and finding.rms_ulps <= SHARED_ULPS and is_close
    return is_shared or rows <= FEW_ROWS or 0 < finding.outliers <= MAX_NARROW_MISSES


def _must_repeat(case: Case, finding: OutputFinding, standard: Standard) -> bool:
    """Return whether a problem is a fault only if it repeats on fresh inputs.

    Such a problem is a near miss of the eager chain's accuracy, within the task's fixed tolerance. For strong
    modulation and outliers there is no fixed tolerance: the eager chain itself exceeds it.
    """
    accepted = finding.fault == "accuracy" or (finding.fault == "tolerance" and case.distribution in HARSH)
    is_near = _may_be_chance(case, finding) or finding.rms_ulps <= FEW_ULPS
    return standard == "close" and accepted and is_near


def _allowed_in(case: Case, frozen: ErrorFigures | None, expected: Expected) -> Expected:
    if frozen is not None:
        expected = expected.widened_to(frozen)
    return _with_slack(expected) if case.distribution in HARSH else expected
