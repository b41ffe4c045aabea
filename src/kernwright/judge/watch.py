"""Watch: the check on every output that a timed block leaves.

Contents are new in every block, so a right output can only have been computed inside it. The bound is that of the
correctness phase, taken from the same row's eager error, so a side that turns imprecise once it is timed is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.judge.contract import EAGER_FACTOR, ULP_FACTOR, ErrorFigures
from kernwright.judge.inputs import Inputs
from kernwright.ops.definition import Op
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

SAMPLING_SLACK = 1.25  # the largest of many errors differs from one draw of inputs to the next


@dataclass(frozen=True)
class BlockExpectation:
    """What each output of one content must be, as bounds that are cheap to compare many times."""

    low: dict[str, Tensor]
    high: dict[str, Tensor]
    centre: dict[str, Tensor]
    most_rms: dict[str, float]
    bits: dict[str, Tensor]

    @classmethod
    def of(cls, task: Task, op: Op, row: Workload, inputs: Inputs, eager: dict[str, ErrorFigures]) -> BlockExpectation:
        scalars = op.scalar_defaults | row.scalars
        if op.contract == "exact":
            own = {name: t.clone() if name in op.inplace else t for name, t in inputs.items()}
            bits = dict(zip(op.outputs, op.call(own, scalars), strict=True))
            return cls({}, {}, {}, {}, bits)
        low, high, centre, most_rms = {}, {}, {}, {}
        for name, oracle in zip(op.outputs, op.oracle(inputs, scalars), strict=True):
            tolerance = task.tolerance_for(row.outputs[name].dtype)
            eps = torch.finfo(getattr(torch, row.concrete_outputs()[name].torch_dtype_name)).eps
            figures = eager[name]
            reach = oracle.abs()
            slack = torch.clamp_min(
                reach * tolerance.rtol + tolerance.atol, EAGER_FACTOR * SAMPLING_SLACK * figures.eager_max
            )
            slack = torch.maximum(slack, ULP_FACTOR * eps * reach)
            low[name], high[name] = (oracle - slack).float(), (oracle + slack).float()
            centre[name] = oracle.float()
            ulp_rms = float(reach.square().mean().sqrt()) * eps
            most_rms[name] = SAMPLING_SLACK * max(EAGER_FACTOR * figures.eager_rms, ULP_FACTOR * ulp_rms)
        return cls(low, high, centre, most_rms, {})

    def problem(self, outputs: dict[str, Tensor]) -> str | None:
        for name, value in outputs.items():
            if name in self.bits:
                if not torch.equal(value, self.bits[name]):
                    return f"{name} differs in its bits from the eager chain"
                continue
            wide = value.float()
            within = (wide >= self.low[name]) & (wide <= self.high[name])
            if not bool(within.all()):
                return f"{name} is wrong in {int((~within).sum())} of {within.numel()} elements"
            rms = float((wide - self.centre[name]).square().mean().sqrt())
            if rms > self.most_rms[name]:
                return f"{name} has an RMS error of {rms:.3g}, over the contract's {self.most_rms[name]:.3g}"
        return None
