"""Contract: how close an output must come, judged against a float64 oracle and the eager chain's own error."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.tasks.task import Tolerance

# What an output is held to. A candidate: its op's contract. A baseline, which is trusted and may round in its own way:
# the task's fixed tolerance alone.
Standard = Contract | Literal["tolerance"]

EAGER_FACTOR = 1.5  # an implementation may be at most this much less accurate than the chain it replaces
ULP_FACTOR = 2.0  # but is never asked to be closer than this many units in the output's last place


@dataclass(frozen=True)
class Expected:
    """What one output must be: the oracle, the eager chain's value, and that chain's own error."""

    oracle: Tensor
    eager: Tensor
    eager_max: float
    eager_rms: float
    ulp_rms: float

    @classmethod
    def of(cls, oracle: Tensor, eager: Tensor) -> Expected:
        finite = torch.isfinite(eager) & torch.isfinite(oracle)
        error = torch.where(finite, (eager.double() - oracle).abs(), 0.0)
        ulp = torch.where(finite, _ulp(oracle, eager.dtype), 0.0)
        return cls(oracle, eager, float(error.max()) if error.numel() else 0.0, _rms(error), _rms(ulp))

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
class Finding:
    """The comparison of one output: its figures, and what is wrong with it, if anything."""

    figures: ErrorFigures
    problem: str | None


def compare(value: Tensor, expected: Expected, standard: Standard, tolerance: Tolerance) -> Finding:
    """Exact: the bits of the eager chain. Close: no less accurate than it, and inside the fixed tolerance."""
    finite = torch.isfinite(expected.eager) & torch.isfinite(expected.oracle)
    error = torch.where(finite, (value.double() - expected.oracle).abs(), 0.0)
    worst = float(error.max()) if error.numel() else 0.0  # NaN in the value gives NaN here
    figures = ErrorFigures(worst, _rms(error), expected.eager_max, expected.eager_rms)
    return Finding(figures, _problem(value, expected, standard, tolerance, error, finite, figures))


def _problem(
    value: Tensor,
    expected: Expected,
    standard: Standard,
    tolerance: Tolerance,
    error: Tensor,
    finite: Tensor,
    figures: ErrorFigures,
) -> str | None:
    if standard == "exact":
        return None if same_bits(value, expected.eager) else "differs in its bits from the eager chain"
    strays = finite & ~torch.isfinite(value)
    if bool(strays.any()):
        return f"{int(strays.sum())} elements are NaN or Inf where the reference is finite"
    if problem := _nonfinite_problem(value, expected):
        return problem
    allowed = EAGER_FACTOR * expected.eager_max
    own_ulp = ULP_FACTOR * _ulp(expected.oracle, expected.eager.dtype)
    bad = finite & (error > allowed) & (error > own_ulp)
    if standard == "close" and bool(bad.any()):
        return (
            f"max error {figures.max_error:.3g} is over {EAGER_FACTOR} x the eager chain's {expected.eager_max:.3g} "
            f"({int(bad.sum())} of {bad.numel()} elements)"
        )
    rms_allowed = max(EAGER_FACTOR * expected.eager_rms, ULP_FACTOR * expected.ulp_rms)
    if standard == "close" and figures.rms_error > rms_allowed:
        return f"RMS error {figures.rms_error:.3g} is over {EAGER_FACTOR} x the eager chain's {expected.eager_rms:.3g}"
    fixed = tolerance.atol + tolerance.rtol * expected.oracle.abs()
    # Where the eager chain itself cannot keep the fixed tolerance, its own error is the measure.
    outside = finite & (error > fixed) & (error > allowed)
    if bool(outside.any()):
        return f"{int(outside.sum())} elements are outside atol {tolerance.atol}, rtol {tolerance.rtol}"
    return None


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
        return torch.zeros_like(oracle)
    info = torch.finfo(dtype)
    return oracle.abs().clamp(info.tiny, info.max).log2().floor().exp2() * info.eps


def _rms(error: Tensor) -> float:
    return float(error.square().mean().sqrt()) if error.numel() else 0.0
