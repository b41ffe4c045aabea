"""Expectations: what every output of a timed block must be, and the check against it.

Contents are new in every block, so a right output can only have been computed inside it. The bound is that of the
correctness phase, taken from the same row's eager error, so a side that turns imprecise once it is timed is seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.judge.numerics.contracts import EAGER_FACTOR, ULP_FACTOR, ErrorFigures, Expected, same_bits
from kernwright.judge.numerics.inputs import Inputs
from kernwright.tasks.task import Tolerance
from kernwright.tasks.workload import Workload

MAX_SLACK = 2.0  # the largest of many errors differs from one draw of inputs to the next
RMS_SLACK = 1.25  # their mean hardly does

Tolerances = Mapping[str, Tolerance]  # by output


@dataclass(frozen=True)
class Bound:
    """One output's place and the distance that it may keep from it.

    Most outputs are as close as the eager chain's largest error; two norms say so. Only what is farther off is looked
    at element by element.
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
    def anywhere(self) -> tuple[float, float]:
        """The largest and the RMS error that are allowed whatever the output's own size."""
        return EAGER_FACTOR * MAX_SLACK * self.eager.eager_max, RMS_SLACK * EAGER_FACTOR * self.eager.eager_rms

    @property
    def room(self) -> float:
        """Where the eager chain itself cannot keep a fixed tolerance, its own error is the measure."""
        return self.anywhere[0]

    @property
    def slack(self) -> Tensor:
        """Element by element: the allowed error, or a few of the element's own last places."""
        return self.centre.abs().mul_(ULP_FACTOR * self.eps).clamp_min_(self.anywhere[0])

    def problem(self, value: Tensor) -> str | None:
        distance = torch.sub(value, self.centre)
        rms = _rms(distance)
        if _within(distance, self.anywhere[0]) and rms <= self.anywhere[1]:
            return None
        within = distance.abs() <= self.slack
        if not bool(within.all()):
            return f"is wrong in {int((~within).sum())} of {within.numel()} elements"
        # A last place is between a half and all of eps times the number.
        most = max(self.anywhere[1], RMS_SLACK * ULP_FACTOR * 0.75 * self.eps * _rms(self.centre))
        return None if rms <= most else f"has an RMS error of {rms:.3g}, over the contract's {most:.3g}"


@dataclass(frozen=True)
class Bits:
    """An exact output: the eager chain's own bits."""

    centre: Tensor

    @property
    def room(self) -> float:
        """One rounding more or less on the way, of a number as large as the largest."""
        return rounding_of_largest(self.centre)

    def problem(self, value: Tensor) -> str | None:
        return None if same_bits(value, self.centre) else "differs in its bits from the eager chain"


def rounding_of_largest(values: Tensor) -> float:
    if not values.is_floating_point() or not values.numel():
        return 0.0
    return torch.finfo(values.dtype).eps * float(values.abs().amax())


def beyond_tolerance(value: Tensor, centre: Tensor, tolerance: Tolerance, room: float) -> str | None:
    """`room`: what is allowed anyway, whatever the tolerance."""
    within = (value - centre).abs() <= (tolerance.atol + tolerance.rtol * centre.abs()).clamp_min(room)  # not for NaN
    within |= value == centre  # also where both are infinite
    if bool(within.all()):
        return None
    strays = int((~within).sum())
    return f"is outside atol {tolerance.atol}, rtol {tolerance.rtol} in {strays} of {within.numel()} elements"


@dataclass(frozen=True)
class BlockExpectation:
    """What each output of one content must be."""

    op: Op
    row: Workload
    inputs: Inputs
    eager: dict[str, ErrorFigures]
    outputs: dict[str, Bound | Bits]

    @classmethod
    def of(cls, op: Op, row: Workload, inputs: Inputs, eager: dict[str, ErrorFigures]) -> BlockExpectation:
        scalars = op.scalar_defaults | row.scalars
        wanted: dict[str, Bound | Bits]
        if op.contract == "exact":
            wanted = {name: Bits(value) for name, value in op.results(inputs, scalars).items()}
        else:
            oracles = op.results(inputs, scalars, precision=watching_precision(op, row))
            wanted = _bounds(op, row, oracles, eager)
        return cls(op, row, inputs, eager, wanted)

    def problem(self, outputs: dict[str, Tensor], tolerances: Tolerances | None = None) -> str | None:
        """`tolerances`: of a side that is held to these alone."""
        for name, value in outputs.items():
            if tolerances is not None:
                wanted = self.outputs[name]
                if problem := beyond_tolerance(value, wanted.centre, tolerances[name], wanted.room):
                    return f"{name} {problem}"
            elif problem := self.outputs[name].problem(value):
                return f"{name} {problem}" if self.op.contract == "exact" else second_look(self, outputs)
        return None


def second_look(expected: BlockExpectation, outputs: dict[str, Tensor]) -> str | None:
    """The bound with the eager chain's error on these very inputs.

    The largest of a million errors is larger on some draws than on the one that the row's bound comes from: nobody is
    accused for an error that the chain itself makes here.
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


def watching_precision(op: Op, row: Workload) -> torch.dtype:
    """float32 places a 16-bit output to a thousandth of its last place, at half of float64's price."""
    narrow = all(spec.item_bytes <= 2 for spec in row.results(op.inplace).values())
    return torch.float32 if narrow else torch.float64


def _within(values: Tensor, most: float) -> bool:
    """By the two ends: the norm says the same, and takes three times as long. False where there is a NaN."""
    return not values.numel() or (float(values.amax()) <= most and float(values.amin()) >= -most)


def _rms(values: Tensor) -> float:
    total: float = torch.linalg.vector_norm(values).item()
    return total / math.sqrt(max(1, values.numel()))
