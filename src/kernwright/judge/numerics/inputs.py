"""Inputs: contents for a row's tensors, new for every call, drawn from a seed that workers never see."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from kernwright.core.op import Op
from kernwright.tasks.tensor import ConcreteTensor
from kernwright.tasks.workload import Workload

Inputs = dict[str, Tensor]
Distribution = Callable[[Tensor, torch.dtype, Generator], Tensor]
SELDOM = 1 / 64  # share of rows
MODULATION_SPREAD = 0.5  # scale, shift, gate and affine tensors of trained models lie well within one of zero
STRONG_SPREAD = 8.0  # some do not, and a shortcut that holds for the others alone is none
HARSH = ("strong", "outlier")  # kinds that only who keeps an op's contract must get right


def _normal(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    return noise


def _offset(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """A large common offset: a variance that is not centred first loses every digit here."""
    return noise + _large(dtype)


def _seldom(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """The same offset in a few rows: who looks at some of them, and takes a shortcut for all, goes wrong here."""
    rows = (*noise.shape[:-1], 1)
    lot = torch.rand(rows, generator=generator, device=noise.device)
    return noise + _large(dtype) * ((lot < SELDOM) | (lot == lot.amin())).to(noise.dtype)


def _large(dtype: torch.dtype) -> float:
    return 16384.0 if dtype in (torch.float32, torch.float64) else 64.0


def _tiny(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    return noise * (1e-4 if dtype == torch.float16 else 1e-10)


def _mixed(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Each row of the last axis at a magnitude of its own, six decades apart at the most."""
    rows = (*noise.shape[:-1], 1)
    exponent = torch.rand(rows, generator=generator, dtype=noise.dtype, device=noise.device) * 6 - 3
    return noise * torch.pow(10.0, exponent)


def _zero_rows(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    rows = (*noise.shape[:-1], 1)
    return noise * (torch.rand(rows, generator=generator, device=noise.device) > 0.5)


def _extremes(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Magnitudes as large as the dtype holds while float32 arithmetic can still square them."""
    largest = min(torch.finfo(dtype).max * 0.25, 1e15)
    share = torch.rand(noise.shape, generator=generator, dtype=noise.dtype, device=noise.device)
    return torch.sign(noise) * largest * share


def _outlier(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """One element of every row far beyond the others: behind a norm it is the only one that is large."""
    width = noise.shape[-1]
    places = torch.randint(0, max(1, width), (*noise.shape[:-1], 1), generator=generator, device=noise.device)
    factor = 1e3 if dtype == torch.float16 else 1e4
    return torch.where(torch.arange(width, device=noise.device) == places, noise * factor, noise)


def _nonfinite(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """A NaN here, an Inf there, most rows clean: they must show where the reference shows them, and nowhere else."""
    planted = noise.clone()
    flat = planted.view(-1)
    values = (math.nan, math.inf, -math.inf)
    places = torch.randint(0, flat.numel(), (len(values),), generator=generator, device=noise.device)
    for place, value in zip(places.tolist(), values, strict=True):
        flat[place] = value
    return planted


def _faint(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    return noise * 1e-3


DISTRIBUTIONS: dict[str, Distribution] = {
    "normal": _normal,
    "bare": _normal,  # of the first activation; the others are faint, and hide nothing of what is done to it
    "offset": _offset,
    "seldom": _seldom,
    "tiny": _tiny,
    "mixed": _mixed,
    "zero_rows": _zero_rows,
    "extremes": _extremes,
    "outlier": _outlier,
    "strong": _outlier,  # with modulations that are large, and none here and there
    "nonfinite": _nonfinite,
}


def whole_numbers(op: Op, row: Workload, name: str, generator: Generator, count: Sequence[int] = ()) -> Tensor:
    """Row numbers of the table that the op picks from; else a choice between two sets, or between yes and no."""
    inputs = row.concrete_inputs()
    choices = inputs[op.indices[name]].shape[0] if name in op.indices else 2
    shape = (*count, *inputs[name].shape)
    dtype = getattr(torch, inputs[name].torch_dtype_name)
    return torch.randint(0, choices, shape, generator=generator, device=generator.device).to(dtype)


def draw_inputs(
    op: Op, row: Workload, distribution: str, noise: Callable[[ConcreteTensor], Tensor], generator: Generator
) -> Inputs:
    """Contents for one call: activations follow the distribution, modulation stays near zero but for one of them."""
    contents: Inputs = {}
    for name, tensor in row.concrete_inputs().items():
        dtype = getattr(torch, tensor.torch_dtype_name)
        if not dtype.is_floating_point:
            contents[name] = whole_numbers(op, row, name, generator)
        elif name in op.activations:
            draw = _faint if distribution == "bare" and name != op.activations[0] else DISTRIBUTIONS[distribution]
            contents[name] = draw(noise(tensor), dtype, generator).to(dtype)
        elif distribution == "strong":
            drawn = noise(tensor) * STRONG_SPREAD
            given = torch.rand(drawn.shape, generator=generator, device=drawn.device) < 0.9
            contents[name] = (drawn * given).to(dtype)
        else:
            contents[name] = (noise(tensor) * MODULATION_SPREAD).to(dtype)
    return contents
