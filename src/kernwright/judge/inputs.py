"""Inputs: contents for a row's tensors, new for every call, drawn from a seed that workers never see."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from kernwright.ops.definition import Op
from kernwright.tasks.tensor import ConcreteTensor
from kernwright.tasks.workload import Workload

Inputs = dict[str, Tensor]
Distribution = Callable[[Tensor, torch.dtype, Generator], Tensor]
MODULATION_SPREAD = 0.5  # scale, shift, gate and affine tensors of trained models lie well within one of zero


def _normal(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    return noise


def _offset(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """A large common offset: a variance that is not centred first loses every digit here."""
    return noise + (16384.0 if dtype in (torch.float32, torch.float64) else 64.0)


def _tiny(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    return noise * (1e-4 if dtype == torch.float16 else 1e-10)


def _mixed(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Each row of the last axis at a magnitude of its own, six decades apart at the most."""
    rows = (*noise.shape[:-1], 1)
    exponent = torch.rand(rows, generator=generator, dtype=noise.dtype) * 6 - 3
    return noise * torch.pow(10.0, exponent)


def _zero_rows(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    rows = (*noise.shape[:-1], 1)
    return noise * (torch.rand(rows, generator=generator) > 0.5)


def _extremes(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Magnitudes as large as the dtype holds while float32 arithmetic can still square them."""
    largest = min(torch.finfo(dtype).max * 0.25, 1e15)
    return torch.sign(noise) * largest * torch.rand(noise.shape, generator=generator, dtype=noise.dtype)


def _nonfinite(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """A NaN here, an Inf there, most rows clean: they must show where the reference shows them, and nowhere else."""
    planted = noise.clone()
    flat = planted.view(-1)
    values = (math.nan, math.inf, -math.inf)
    places = torch.randint(0, flat.numel(), (len(values),), generator=generator)
    for place, value in zip(places.tolist(), values, strict=True):
        flat[place] = value
    return planted


DISTRIBUTIONS: dict[str, Distribution] = {
    "normal": _normal,
    "offset": _offset,
    "tiny": _tiny,
    "mixed": _mixed,
    "zero_rows": _zero_rows,
    "extremes": _extremes,
    "nonfinite": _nonfinite,
}


def _whole_numbers(tensor: ConcreteTensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Indices choose between two tables, masks between yes and no."""
    return torch.randint(0, 2, tensor.shape, generator=generator).to(dtype)


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
        """Contents for one call: activations follow the distribution, modulation stays near zero."""
        contents: Inputs = {}
        for name, tensor in row.concrete_inputs().items():
            dtype = getattr(torch, tensor.torch_dtype_name)
            if not dtype.is_floating_point:
                contents[name] = _whole_numbers(tensor, dtype, self.generator)
            elif name in op.activations:
                contents[name] = DISTRIBUTIONS[distribution](self._noise(tensor), dtype, self.generator).to(dtype)
            else:
                contents[name] = (self._noise(tensor) * MODULATION_SPREAD).to(dtype)
        return contents

    def _noise(self, tensor: ConcreteTensor) -> Tensor:
        return torch.add(self._window(tensor) * self._factor(), self._window(tensor), alpha=self._factor())

    def _window(self, tensor: ConcreteTensor) -> Tensor:
        start = int(torch.randint(0, self.normals.numel() - tensor.elements, (1,), generator=self.generator))
        return self.normals[start : start + tensor.elements].view(tensor.shape)

    def _factor(self) -> float:
        """The sum's spread stays within a few percent of one, so a block's errors compare with the checked ones."""
        draw = torch.rand(2, generator=self.generator)
        return float((0.95 + 0.1 * draw[0]) * 0.5**0.5 * (1 if draw[1] < 0.5 else -1))
