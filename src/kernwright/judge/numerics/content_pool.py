"""ContentPool: fresh contents on a CPU, at the price of a copy."""

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
    """Fresh contents at the price of a copy.

    Every draw is the sum of two windows at secret places of a long run of normal numbers, each times a secret factor.
    A side that remembers the run could recognise one window and look up its sums; of two at an unknown distance it has
    no table. No pair comes twice.
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
        """The sum's spread stays within a few percent of one, so a block's errors compare with the checked ones."""
        size, sign = torch.rand(2, generator=self.generator).tolist()
        return float((0.95 + 0.1 * size) * 0.5**0.5 * (1 if sign < 0.5 else -1))
