"""ContentPool: fresh contents on a CPU, at the cost of a copy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from kernwright.core.op import Op
from kernwright.judge.numerics.contents import EagerErrors, ListedContents
from kernwright.judge.numerics.expectations import BlockExpectation
from kernwright.judge.numerics.inputs import Inputs, draw_inputs
from kernwright.tasks.tensor import ConcreteTensor
from kernwright.tasks.workload import Workload


@dataclass
class ContentPool:
    """A source of fresh contents at the cost of a copy.

    Every draw is the sum of two windows at secret offsets into a long array of normal numbers, each scaled by a secret
    factor. A side that had stored the array could recognise a single window and look up precomputed results. It cannot
    tabulate the sums of two windows at an unknown distance.
    """

    normals: Tensor
    generator: Generator

    @classmethod
    def for_row(cls, row: Workload, generator: Generator) -> ContentPool:
        largest = max(tensor.elements for tensor in row.concrete_inputs().values())
        length = min(2 * largest, largest + 2**21) + 2**18
        return cls(torch.randn(length, generator=generator, dtype=torch.float32), generator)

    def draw(self, op: Op, row: Workload, distribution: str = "normal") -> Inputs:
        return draw_inputs(op, row, distribution, self._noise, self.generator)

    def contents(self, op: Op, row: Workload, count: int, eager: EagerErrors) -> ListedContents:
        drawn = (self.draw(op, row) for _ in range(count))
        return ListedContents(tuple((inputs, BlockExpectation.of(op, row, inputs, eager)) for inputs in drawn))

    def _noise(self, tensor: ConcreteTensor) -> Tensor:
        return torch.add(self._window(tensor) * self._factor(), self._window(tensor), alpha=self._factor())

    def _window(self, tensor: ConcreteTensor) -> Tensor:
        start = int(torch.randint(0, self.normals.numel() - tensor.elements, (1,), generator=self.generator))
        return self.normals[start : start + tensor.elements].view(tensor.shape)

    def _factor(self) -> float:
        """Return a random scale factor.

        The standard deviation of the sum stays within a few percent of 1, so that errors in timed blocks are
        comparable with those of the correctness phase.
        """
        size, sign = torch.rand(2, generator=self.generator).tolist()
        return float((0.95 + 0.1 * size) * 0.5**0.5 * (1 if sign < 0.5 else -1))
