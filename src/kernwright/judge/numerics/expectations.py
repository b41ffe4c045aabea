"""Expectations: the expected outputs of a timed block, and the check of outputs against them.

Contents are new in every block, so a correct output can only have been computed inside the block. The bound is derived
from the eager error of the correctness phase, so a side that becomes less accurate while it is timed is detected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.judge.numerics.contracts import (
    EAGER_FACTOR,
    RMS_ULP_FACTOR,
    ULP_FACTOR,
    ErrorFigures,
    Expected,
    same_bits,
    ulp_of,
)
from kernwright.judge.numerics.inputs import Inputs
from kernwright.tasks.task import Tolerance
from kernwright.tasks.workload import Workload

MAX_SLACK = 2.0  # slack for the maximum error, which varies between draws of inputs
RMS_SLACK = 1.25  # slack for the RMS error, which varies little

Tolerances = Mapping[str, Tolerance]  # the key is the name of an output


@dataclass(frozen=True)
class Bound:
    """The oracle of one output and the allowed error around it.

    Most outputs are within the eager chain's largest error, which two norms show. Only other outputs are compared
    element by element.
    """

    centre: Tensor
    dtype: torch.dtype
    eager: ErrorFigures

    @classmethod
    def around(cls, oracle: Tensor, dtype: torch.dtype, eager: ErrorFigures) -> Bound:
        return cls(oracle if oracle.is_floating_point() else oracle.double(), dtype, eager)

    @property
    def eps(self) -> float:
        return torch.finfo(self.dtype).eps if self.dtype.is_floating_point else 0.0

    @property
    def limits(self) -> tuple[float, float]:
        """The maximum and the RMS error that are allowed whatever the magnitude of the output."""
        return EAGER_FACTOR * MAX_SLACK * self.eager.eager_max, RMS_SLACK * EAGER_FACTOR * self.eager.eager_rms

    @property
    def least_allowed(self) -> float:
        """The error that is allowed even beyond a fixed tolerance, because the eager chain itself makes it."""
        return self.limits[0]

    @property
    def element_limits(self) -> Tensor:
        """The allowed error of each element: the maximum error, or a few units in the element's last place."""
        return self.centre.abs().mul_(ULP_FACTOR * self.eps).clamp_min_(self.limits[0])

    def problem(self, value: Tensor) -> str | None:
        error = torch.sub(value, self.centre)
        rms = _rms(error)
        if _within(error, self.limits[0]) and rms <= self.limits[1]:
            return None
        within = error.abs() <= self.element_limits
        if not bool(within.all()):
            return f"is wrong in {int((~within).sum())} of {within.numel()} elements"
        allowed = max(self.limits[1], RMS_SLACK * RMS_ULP_FACTOR * _rms(ulp_of(self.centre, self.dtype)))
        return None if rms <= allowed else f"has an RMS error of {rms:.3g}, over the contract's {allowed:.3g}"


@dataclass(frozen=True)
class Bits:
    """The expectation for an exact output: the bits of the eager chain."""

    centre: Tensor

    @property
    def least_allowed(self) -> float:
        """The error of one additional rounding of the largest value."""
        return rounding_of_largest(self.centre)

    def problem(self, value: Tensor) -> str | None:
        return None if same_bits(value, self.centre) else "differs in its bits from the eager chain"


def rounding_of_largest(values: Tensor) -> float:
    if not values.is_floating_point() or not values.numel():
        return 0.0
    return torch.finfo(values.dtype).eps * float(values.abs().amax())


def tolerance_problem(value: Tensor, centre: Tensor, tolerance: Tolerance, least_allowed: float) -> str | None:
    """Return a problem if elements are outside the tolerance. An error of `least_allowed` is accepted in any case."""
    allowed = (tolerance.atol + tolerance.rtol * centre.abs()).clamp_min(least_allowed)
    within = (value - centre).abs() <= allowed  # false where the output is NaN
    within |= value == centre  # true where both are the same infinity
    if bool(within.all()):
        return None
    outside = int((~within).sum())
    return f"is outside atol {tolerance.atol}, rtol {tolerance.rtol} in {outside} of {within.numel()} elements"


@dataclass(frozen=True)
class BlockExpectation:
    """The expected outputs of one call of a timed block."""

    op: Op
    row: Workload
    inputs: Inputs
    eager: dict[str, ErrorFigures]
    outputs: dict[str, Bound | Bits]

    @classmethod
    def of(cls, op: Op, row: Workload, inputs: Inputs, eager: dict[str, ErrorFigures]) -> BlockExpectation:
        scalars = op.scalar_defaults | row.scalars
        expected: dict[str, Bound | Bits]
        if op.contract == "exact":
            expected = {name: Bits(value) for name, value in op.results(inputs, scalars).items()}
        else:
            oracles = op.results(inputs, scalars, precision=block_oracle_precision(op, row))
            expected = _bounds(op, row, oracles, eager)
        return cls(op, row, inputs, eager, expected)

    def problem(self, outputs: dict[str, Tensor], tolerances: Tolerances | None = None) -> str | None:
        """Return the first problem of the outputs under the op's contract, or under `tolerances` if they are given."""
        for name, value in outputs.items():
            if tolerances is not None:
                expected = self.outputs[name]
                if problem := tolerance_problem(value, expected.centre, tolerances[name], expected.least_allowed):
                    return f"{name} {problem}"
            elif problem := self.outputs[name].problem(value):
                return f"{name} {problem}" if self.op.contract == "exact" else recheck(self, outputs)
        return None


def recheck(expected: BlockExpectation, outputs: dict[str, Tensor]) -> str | None:
    """Check outputs that exceeded the bound again, with the eager chain's error on the same inputs.

    The row's bound comes from one draw of inputs. On other draws the eager chain may make larger errors, and an error
    that the eager chain makes too is not a fault.
    """
    op, row, inputs = expected.op, expected.row, expected.inputs
    scalars = op.scalar_defaults | row.scalars
    oracles, eagers = op.results(inputs, scalars, precision=torch.float64), op.results(inputs, scalars)
    widened = {}
    for name, known in expected.eager.items():
        here = Expected.of(oracles[name], eagers[name])
        widened[name] = ErrorFigures(
            here.eager_max, here.eager_rms, max(here.eager_max, known.eager_max), max(here.eager_rms, known.eager_rms)
        )
    for name, bound in _bounds(op, row, oracles, widened).items():
        if name in outputs and (problem := bound.problem(outputs[name])):
            return f"{name} {problem}"
    return None


def _bounds(
    op: Op, row: Workload, oracles: dict[str, Tensor], eager: dict[str, ErrorFigures]
) -> dict[str, Bound | Bits]:
    specs = row.results(op.inplace)
    return {
        name: Bound.around(oracle, getattr(torch, specs[name].torch_dtype_name), eager[name])
        for name, oracle in oracles.items()
    }


def block_oracle_precision(op: Op, row: Workload) -> torch.dtype:
    """Return the dtype of the oracle in timed blocks.

    For 16-bit outputs float32 is accurate to a thousandth of a unit in the last place, at half the cost of float64.
    """
    narrow = all(spec.item_bytes <= 2 for spec in row.results(op.inplace).values())
    return torch.float32 if narrow else torch.float64


def _within(values: Tensor, limit: float) -> bool:
    """Return whether no absolute value exceeds the limit; False if there is a NaN.

    Maximum and minimum take a third of the time of the infinity norm.
    """
    return not values.numel() or (float(values.amax()) <= limit and float(values.amin()) >= -limit)


def _rms(values: Tensor) -> float:
    total: float = torch.linalg.vector_norm(values).item()
    return total / math.sqrt(max(1, values.numel()))
