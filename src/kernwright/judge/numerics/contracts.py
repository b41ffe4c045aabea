"""Contract: how close an output must come, judged against a float64 oracle and the eager chain's own error."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from kernwright.core.op import Contract
from kernwright.tasks.task import Tolerance

# What an output is held to. A candidate: its op's contract. A baseline, which is trusted and may round in its own way:
# the task's fixed tolerance alone.
Standard = Contract | Literal["tolerance"]

EAGER_FACTOR = 1.5  # an implementation may be at most this much less accurate than the chain it replaces
ULP_FACTOR = 2.0  # but is never asked to be closer than this many units in the output's last place
EXPONENT = 0x7FF0_0000_0000_0000  # of a float64's bits


@dataclass(frozen=True)
class Expected:
    """What one output must be: the oracle, the eager chain's value, and that chain's own error."""

    oracle: Tensor
    eager: Tensor
    eager_max: float
    eager_rms: float
    ulp_rms: float
    finite: Tensor | None  # where both are numbers; none where they are everywhere

    @classmethod
    def of(cls, oracle: Tensor, eager: Tensor) -> Expected:
        finite = None if all_finite(eager) and all_finite(oracle) else torch.isfinite(eager) & torch.isfinite(oracle)
        error = _error(eager, oracle, finite)
        ulp = _ulp(oracle, eager.dtype)
        if finite is not None:
            ulp = torch.where(finite, ulp, 0.0)
        return cls(oracle, eager, largest(error), _rms(error), _rms(ulp), finite)

    def at_least(self, known: ErrorFigures) -> Expected:
        """With no less room than an error of the eager chain that is known from elsewhere."""
        return replace(
            self, eager_max=max(self.eager_max, known.eager_max), eager_rms=max(self.eager_rms, known.eager_rms)
        )


@dataclass(frozen=True)
class ErrorFigures:
    """How far an output was from the oracle, and how far the eager chain was."""

    max_error: float
    rms_error: float
    eager_max: float
    eager_rms: float

    def as_record(self) -> dict[str, float | None]:
        """For the ledger, which holds no NaN: a figure that is not finite is none."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}


@dataclass(frozen=True)
class OutputFinding:
    """The comparison of one output: its figures, and what is wrong with it, if anything."""

    figures: ErrorFigures
    problem: str | None
    beyond: int = 0  # elements that are further from the oracle than the eager chain is anywhere, where that is all


def compare(value: Tensor, expected: Expected, standard: Standard, tolerance: Tolerance) -> OutputFinding:
    """Exact: the bits of the eager chain. Close: no less accurate than it, and inside the fixed tolerance."""
    error = _error(value, expected.oracle, expected.finite)
    worst = largest(error)  # NaN in the value gives NaN here
    figures = ErrorFigures(worst, _rms(error), expected.eager_max, expected.eager_rms)
    problem = _problem(value, expected, standard, tolerance, error, figures)
    return OutputFinding(figures, problem, int((error > EAGER_FACTOR * expected.eager_max).sum()) if problem else 0)


def _error(value: Tensor, oracle: Tensor, finite: Tensor | None) -> Tensor:
    error = (value.double() - oracle).abs_()
    return error if finite is None else torch.where(finite, error, 0.0)


def _problem(
    value: Tensor,
    expected: Expected,
    standard: Standard,
    tolerance: Tolerance,
    error: Tensor,
    figures: ErrorFigures,
) -> str | None:
    if standard == "exact":
        return None if same_bits(value, expected.eager) else "differs in its bits from the eager chain"
    if not math.isfinite(figures.max_error) and (strays := _strays(value, expected.finite)):
        return f"{strays} elements are NaN or Inf where the reference is finite"
    if expected.finite is not None and (problem := _nonfinite_problem(value, expected)):
        return problem
    allowed = EAGER_FACTOR * expected.eager_max
    within = figures.max_error <= allowed  # then no element needs a look of its own
    if standard == "close" and not within:
        bad = (error > allowed) & (error > ULP_FACTOR * _ulp(expected.oracle, expected.eager.dtype))
        if count := int(bad.sum()):
            return (
                f"max error {figures.max_error:.3g} is over {EAGER_FACTOR} x the eager chain's "
                f"{expected.eager_max:.3g} ({count} of {bad.numel()} elements)"
            )
    rms_allowed = max(EAGER_FACTOR * expected.eager_rms, ULP_FACTOR * expected.ulp_rms)
    if standard == "close" and figures.rms_error > rms_allowed:
        return f"RMS error {figures.rms_error:.3g} is over {EAGER_FACTOR} x the eager chain's {expected.eager_rms:.3g}"
    if within:
        return None
    # Where the eager chain itself cannot keep the fixed tolerance, its own error is the measure.
    outside = (error > tolerance.atol + tolerance.rtol * expected.oracle.abs()) & (error > allowed)
    count = int(outside.sum())
    return f"{count} elements are outside atol {tolerance.atol}, rtol {tolerance.rtol}" if count else None


def _strays(value: Tensor, finite: Tensor | None) -> int:
    strays = ~torch.isfinite(value)
    return int((strays if finite is None else strays & finite).sum())


def _nonfinite_problem(value: Tensor, expected: Expected) -> str | None:
    """Where oracle and eager chain agree that there is no number, the output has none either, and the same one.

    Where only the eager chain overflowed, a number is no fault; where only the oracle did, the comparison saw to it.
    """
    eager = expected.eager
    if not eager.is_floating_point():
        return None
    beyond = ~torch.isfinite(expected.oracle.to(eager.dtype))
    if bool((beyond & torch.isnan(eager) & torch.isfinite(value)).any()):
        return "finite where the reference is NaN"
    infinite = beyond & torch.isinf(eager)
    if bool((infinite & torch.isfinite(value)).any()):
        return "finite where the reference is infinite"
    if bool((infinite & torch.isinf(value) & (value != eager)).any()):
        return "infinite with the wrong sign"
    return None


def same_bits(value: Tensor, eager: Tensor) -> bool:
    """Bit by bit, but for NaN: a NaN matches a NaN."""
    if not value.is_floating_point():
        return torch.equal(value, eager)
    same = (value == eager) & (torch.signbit(value) == torch.signbit(eager))
    return bool((same | (torch.isnan(value) & torch.isnan(eager))).all())


def _ulp(oracle: Tensor, dtype: torch.dtype) -> Tensor:
    """Size of the last place of each oracle value, were it stored in the output's dtype."""
    if not dtype.is_floating_point:
        return torch.zeros_like(oracle, dtype=torch.float64)
    info = torch.finfo(dtype)
    bits = oracle.double().abs().clamp_(info.tiny, info.max).view(torch.int64)
    return bits.bitwise_and_(EXPONENT).view(torch.float64).mul_(info.eps)  # a number's exponent alone is its power of 2


def all_finite(values: Tensor) -> bool:
    """By the two ends, which cost a fraction of a look at each: NaN is an end wherever it is."""
    if not values.is_floating_point() or not values.numel():
        return True
    return math.isfinite(float(values.amax())) and math.isfinite(float(values.amin()))


def largest(values: Tensor) -> float:
    return float(values.amax()) if values.numel() else 0.0


def _rms(error: Tensor) -> float:
    return float(torch.linalg.vector_norm(error)) / math.sqrt(max(1, error.numel()))
