"""Watch: the check on every output that a timed block leaves.

Contents are new in every block, so a right output can only have been computed inside it. The bound is that of the
correctness phase, taken from the same row's eager error, so a side that turns imprecise once it is timed is seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.judge.contract import EAGER_FACTOR, ULP_FACTOR, ErrorFigures, same_bits
from kernwright.judge.inputs import Inputs
from kernwright.ops.definition import Op
from kernwright.tasks.workload import Workload

MAX_SLACK = 2.0  # the largest of many errors differs from one draw of inputs to the next
RMS_SLACK = 1.25  # their mean hardly does


@dataclass(frozen=True)
class Bound:
    """One output's place and the distance that it may keep from it: two arrays, cheap to compare many times."""

    centre: Tensor
    slack: Tensor
    most_rms: float

    @classmethod
    def around(cls, oracle: Tensor, dtype: torch.dtype, eager: ErrorFigures) -> Bound:
        centre = oracle if oracle.is_floating_point() else oracle.double()
        eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
        slack = centre.abs().mul_(ULP_FACTOR * eps)
        slack.clamp_min_(EAGER_FACTOR * MAX_SLACK * eager.eager_max)
        ulp_rms = 0.75 * eps * _rms(centre)  # a last place is between a half and all of eps times the number
        return cls(centre, slack, RMS_SLACK * max(EAGER_FACTOR * eager.eager_rms, ULP_FACTOR * ulp_rms))

    def problem(self, value: Tensor) -> str | None:
        distance = value.to(self.centre.dtype) - self.centre
        within = distance.abs() <= self.slack  # false for NaN
        if not bool(within.all()):
            return f"is wrong in {int((~within).sum())} of {within.numel()} elements"
        if (rms := _rms(distance)) > self.most_rms:
            return f"has an RMS error of {rms:.3g}, over the contract's {self.most_rms:.3g}"
        return None


@dataclass(frozen=True)
class Bits:
    """An exact output: the eager chain's own bits."""

    eager: Tensor

    def problem(self, value: Tensor) -> str | None:
        return None if same_bits(value, self.eager) else "differs in its bits from the eager chain"


@dataclass(frozen=True)
class BlockExpectation:
    """What each output of one content must be."""

    outputs: dict[str, Bound | Bits]

    @classmethod
    def of(cls, op: Op, row: Workload, inputs: Inputs, eager: dict[str, ErrorFigures]) -> BlockExpectation:
        scalars = op.scalar_defaults | row.scalars
        if op.contract == "exact":
            return cls({name: Bits(value) for name, value in op.results(inputs, scalars).items()})
        bounds: dict[str, Bound | Bits] = {}
        specs = row.results(op.inplace)
        # float32 places a 16-bit output to a thousandth of its last place, at half of float64's price.
        narrow = all(spec.item_bytes <= 2 for spec in specs.values())
        precision = torch.float32 if narrow else torch.float64
        for name, oracle in op.results(inputs, scalars, precision=precision).items():
            spec = specs[name]
            dtype = getattr(torch, spec.torch_dtype_name)
            bounds[name] = Bound.around(oracle, dtype, eager[name])
        return cls(bounds)

    def problem(self, outputs: dict[str, Tensor]) -> str | None:
        for name, value in outputs.items():
            if problem := self.outputs[name].problem(value):
                return f"{name} {problem}"
        return None


def _rms(values: Tensor) -> float:
    total: float = torch.linalg.vector_norm(values).item()
    return total / math.sqrt(max(1, values.numel()))
