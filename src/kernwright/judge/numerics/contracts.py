"""Contract: the allowed error of an output, measured against a float64 oracle and relative to the eager chain's error.

The eager chain is the op's reference in the row's dtypes; the oracle is the same chain in float64.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from kernwright.core.op import Contract
from kernwright.tasks.task import Tolerance

# The standard that outputs are compared under. A candidate must keep its op's contract. A baseline is trusted and may
# round differently, so it only has to stay within the task's fixed tolerance.
Standard = Contract | Literal["tolerance"]

# The kind of a problem. `accuracy`: the error exceeds the eager chain's, but not the task's fixed tolerance.
Fault = Literal["bits", "nonfinite", "accuracy", "tolerance"]

EAGER_FACTOR = 1.5  # the error of an implementation may be this multiple of the eager chain's error
ULP_FACTOR = 2.0  # a maximum error of this many units in the last place of the output is always allowed
# An RMS error of this many units in the last place is always allowed. Rounding alone has 0.29, an even distribution
# over one unit, and two roundings in a row have 0.41.
RMS_ULP_FACTOR = 0.5
EXPONENT_MASK = 0x7FF0_0000_0000_0000  # the exponent bits of a float64


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The expected value of one output: oracle, eager chain, and the error of the eager chain."""

    oracle: Tensor
    eager: Tensor
    eager_max: float
    eager_rms: float
    ulp_rms: float
    finite: Tensor | None  # mask of the elements that are finite in both; None if all are

    @classmethod
    def of(cls, oracle: Tensor, eager: Tensor) -> Expected:
        finite = None if all_finite(eager) and all_finite(oracle) else torch.isfinite(eager) & torch.isfinite(oracle)
        error = _error(eager, oracle, finite)
        ulp = ulp_of(oracle, eager.dtype)
        if finite is not None:
            ulp = torch.where(finite, ulp, 0.0)
        return cls(
            oracle=oracle,
            eager=eager,
            eager_max=largest(error),
            eager_rms=_rms(error),
            ulp_rms=_rms(ulp),
            finite=finite,
        )

    def widened_to(self, known: ErrorFigures) -> Expected:
        """Return a copy whose eager error is at least the one measured on other inputs."""
        return replace(
            self, eager_max=max(self.eager_max, known.eager_max), eager_rms=max(self.eager_rms, known.eager_rms)
        )


@dataclass(frozen=True)
class ErrorFigures:
    """The error of an output and of the eager chain, both relative to the oracle."""

    max_error: float
    rms_error: float
    eager_max: float
    eager_rms: float

    def as_record(self) -> dict[str, float | None]:
        """Return the figures for the ledger. Non-finite figures become None, since JSON has no NaN."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}


@dataclass(frozen=True)
class OutputFinding:
    """The comparison of one output: its error figures, and the problem and its kind if there is one."""

    figures: ErrorFigures
    problem: str | None
    outliers: int = 0  # elements whose error exceeds the allowed multiple of the eager chain's largest error
    fault: Fault | None = None
    rms_ulps: float = math.inf  # the RMS error relative to the RMS of the outputs' units in the last place


def compare(value: Tensor, expected: Expected, standard: Standard, tolerance: Tolerance) -> OutputFinding:
    """Compare an output with its expectation.

    `exact` asks for the bits of the eager chain, `close` for its accuracy and the fixed tolerance, `tolerance` for the
    fixed tolerance only.
    """
    error = _error(value, expected.oracle, expected.finite)
    worst = largest(error)  # NaN if the output holds a NaN
    figures = ErrorFigures(worst, _rms(error), expected.eager_max, expected.eager_rms)
    fault, problem = _problem(value, expected, standard, tolerance, error, figures) or (None, None)
    outliers = int((error > EAGER_FACTOR * expected.eager_max).sum()) if problem else 0
    rms_ulps = figures.rms_error / expected.ulp_rms if expected.ulp_rms else math.inf
    return OutputFinding(figures=figures, problem=problem, outliers=outliers, fault=fault, rms_ulps=rms_ulps)


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
) -> tuple[Fault, str] | None:
    if standard == "exact":
        return None if same_bits(value, expected.eager) else ("bits", "differs in its bits from the eager chain")
    if not math.isfinite(figures.max_error) and (count := _count_nonfinite(value, expected.finite)):
        return "nonfinite", f"{count} elements are NaN or Inf where the reference is finite"
    if expected.finite is not None and (problem := _nonfinite_problem(value, expected)):
        return "nonfinite", problem
    allowed = EAGER_FACTOR * expected.eager_max
    within = figures.max_error <= allowed  # if so, the comparisons element by element are not needed
    outside = 0
    if not within:
        # Where the eager chain itself exceeds the fixed tolerance, its error is allowed instead.
        beyond = (error > tolerance.atol + tolerance.rtol * expected.oracle.abs()) & (error > allowed)
        outside = int(beyond.sum())
    if standard == "close" and (problem := _accuracy_problem(expected, error, figures)):
        return "tolerance" if outside else "accuracy", problem
    return (
        ("tolerance", f"{outside} elements are outside atol {tolerance.atol}, rtol {tolerance.rtol}")
        if outside
        else None
    )


def _accuracy_problem(expected: Expected, error: Tensor, figures: ErrorFigures) -> str | None:
    """Return a problem if the maximum or the RMS error is too large relative to the eager chain's."""
    allowed = EAGER_FACTOR * expected.eager_max
    if not figures.max_error <= allowed:
        bad = (error > allowed) & (error > ULP_FACTOR * ulp_of(expected.oracle, expected.eager.dtype))
        if count := int(bad.sum()):
            return (
                f"max error {figures.max_error:.3g} is over {EAGER_FACTOR} x the eager chain's "
                f"{expected.eager_max:.3g} ({count} of {bad.numel()} elements)"
            )
    rms_allowed = max(EAGER_FACTOR * expected.eager_rms, RMS_ULP_FACTOR * expected.ulp_rms)
    if figures.rms_error > rms_allowed:
        return (
            f"RMS error {figures.rms_error:.3g} is over {EAGER_FACTOR} x the eager chain's {expected.eager_rms:.3g} "
            f"and over half a unit in the last place, {RMS_ULP_FACTOR * expected.ulp_rms:.3g}"
        )
    return None


def _count_nonfinite(value: Tensor, finite: Tensor | None) -> int:
    """Return the number of non-finite elements where finite ones are expected."""
    nonfinite = ~torch.isfinite(value)
    return int((nonfinite if finite is None else nonfinite & finite).sum())


def _nonfinite_problem(value: Tensor, expected: Expected) -> str | None:
    """Return a problem if the output lacks a NaN or an infinity that oracle and eager chain agree on.

    A finite output is correct where only the eager chain overflowed.
    """
    eager = expected.eager
    if not eager.is_floating_point():
        return None
    nonfinite = ~torch.isfinite(expected.oracle.to(eager.dtype))
    if bool((nonfinite & torch.isnan(eager) & torch.isfinite(value)).any()):
        return "finite where the reference is NaN"
    infinite = nonfinite & torch.isinf(eager)
    if bool((infinite & torch.isfinite(value)).any()):
        return "finite where the reference is infinite"
    if bool((infinite & torch.isinf(value) & (value != eager)).any()):
        return "infinite with the wrong sign"
    return None


def same_bits(value: Tensor, eager: Tensor) -> bool:
    """Return whether two tensors are bitwise equal. Any NaN equals any other NaN."""
    if not value.is_floating_point():
        return torch.equal(value, eager)
    same = (value == eager) & (torch.signbit(value) == torch.signbit(eager))
    return bool((same | (torch.isnan(value) & torch.isnan(eager))).all())


def ulp_of(oracle: Tensor, dtype: torch.dtype) -> Tensor:
    """Return one unit in the last place of each oracle value in the output's dtype."""
    if not dtype.is_floating_point:
        return torch.zeros_like(oracle, dtype=torch.float64)
    info = torch.finfo(dtype)
    bits = oracle.double().abs().clamp_(info.tiny, info.max).view(torch.int64)
    powers_of_two = bits.bitwise_and_(EXPONENT_MASK).view(torch.float64)
    return powers_of_two.mul_(info.eps)


def all_finite(values: Tensor) -> bool:
    """Return whether all values are finite.

    The maximum and the minimum are much cheaper than `torch.isfinite`, and both are NaN if any element is.
    """
    if not values.is_floating_point() or not values.numel():
        return True
    return math.isfinite(float(values.amax())) and math.isfinite(float(values.amin()))


def largest(values: Tensor) -> float:
    return float(values.amax()) if values.numel() else 0.0


def _rms(error: Tensor) -> float:
    return float(torch.linalg.vector_norm(error)) / math.sqrt(max(1, error.numel()))
