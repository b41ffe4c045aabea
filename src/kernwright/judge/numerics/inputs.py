"""Inputs: random contents for a row's tensors, new for every call, from a seed that workers never see."""

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
RARE_ROWS = 1 / 64  # share of rows that "rare_offset" changes
MODULATION_SPREAD = 0.5  # standard deviation of scale, shift, gate and affine tensors, typical of trained models
STRONG_SPREAD = 8.0  # standard deviation in "strong", which reveals shortcuts that assume small modulation
HARSH = ("strong", "outlier")  # distributions that are skipped for sides that only keep the fixed tolerance


def _normal(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    return noise


def _offset(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Add a large offset, with which a variance computed as E[x^2] - E[x]^2 loses every digit."""
    return noise + _offset_of(dtype)


def _rare_offset(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Add the offset to a few rows only, which reveals a shortcut for all rows that is chosen from a sample of them."""
    rows = (*noise.shape[:-1], 1)
    uniform = torch.rand(rows, generator=generator, device=noise.device)
    return noise + _offset_of(dtype) * ((uniform < RARE_ROWS) | (uniform == uniform.amin())).to(noise.dtype)


def _offset_of(dtype: torch.dtype) -> float:
    return 16384.0 if dtype in (torch.float32, torch.float64) else 64.0


def _tiny(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Scale to values whose squares are far below the usual eps of a norm, 1e-6.

    In float32, only every second row or so is so small that eps alone remains. If all were, they would share the
    rounding of 1/sqrt(eps), and an exactly rounded root can then be less accurate than the eager chain's. The rounding
    of a bfloat16 output hides this.
    """
    if dtype in (torch.bfloat16, torch.float16):
        return noise * (1e-10 if dtype == torch.bfloat16 else 1e-4)
    rows = (*noise.shape[:-1], 1)
    is_least = torch.rand(rows, generator=generator, device=noise.device) < 0.5
    return noise * torch.where(is_least, 1e-10, 1e-4).to(noise.dtype)


def _mixed(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Scale each row of the last axis by a random power of ten between 1e-3 and 1e3."""
    rows = (*noise.shape[:-1], 1)
    exponent = torch.rand(rows, generator=generator, dtype=noise.dtype, device=noise.device) * 6 - 3
    return noise * torch.pow(10.0, exponent)


def _zero_rows(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    rows = (*noise.shape[:-1], 1)
    return noise * (torch.rand(rows, generator=generator, device=noise.device) > 0.5)


def _extremes(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Return magnitudes as large as the dtype holds, limited so that float32 can still represent their squares."""
    largest = min(torch.finfo(dtype).max * 0.25, 1e15)
    share = torch.rand(noise.shape, generator=generator, dtype=noise.dtype, device=noise.device)
    return torch.sign(noise) * largest * share


def _outlier(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Scale one element of every row by a large factor, so that after a norm all others are tiny."""
    width = noise.shape[-1]
    positions = torch.randint(0, max(1, width), (*noise.shape[:-1], 1), generator=generator, device=noise.device)
    factor = 1e3 if dtype == torch.float16 else 1e4
    return torch.where(torch.arange(width, device=noise.device) == positions, noise * factor, noise)


def _nonfinite(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    """Set three random elements to NaN, Inf and -Inf. Outputs must propagate them exactly where the reference does."""
    planted = noise.clone()
    flat = planted.view(-1)
    values = (math.nan, math.inf, -math.inf)
    positions = torch.randint(0, flat.numel(), (len(values),), generator=generator, device=noise.device)
    for position, value in zip(positions.tolist(), values, strict=True):
        flat[position] = value
    return planted


def _small(noise: Tensor, dtype: torch.dtype, generator: Generator) -> Tensor:
    return noise * 1e-3


DISTRIBUTIONS: dict[str, Distribution] = {
    "normal": _normal,
    "first_activation": _normal,  # the other activations are small, so that errors in the first one are visible
    "offset": _offset,
    "rare_offset": _rare_offset,
    "tiny": _tiny,
    "mixed": _mixed,
    "zero_rows": _zero_rows,
    "extremes": _extremes,
    "outlier": _outlier,
    "strong": _outlier,  # modulation tensors are large, with a tenth of their elements zero
    "nonfinite": _nonfinite,
}


def draw_integers(op: Op, row: Workload, name: str, generator: Generator, count: Sequence[int] = ()) -> Tensor:
    """Return random row indices for a tensor that indexes a table; otherwise zeros and ones. `count` adds axes."""
    inputs = row.concrete_inputs()
    choices = inputs[op.indices[name]].shape[0] if name in op.indices else 2
    shape = (*count, *inputs[name].shape)
    dtype = getattr(torch, inputs[name].torch_dtype_name)
    return torch.randint(0, choices, shape, generator=generator, device=generator.device).to(dtype)


def draw_inputs(
    op: Op, row: Workload, distribution: str, noise: Callable[[ConcreteTensor], Tensor], generator: Generator
) -> Inputs:
    """Return the inputs of one call. Activations follow the distribution; modulation is small except in "strong"."""
    contents: Inputs = {}
    for name, tensor in row.concrete_inputs().items():
        dtype = getattr(torch, tensor.torch_dtype_name)
        if not dtype.is_floating_point:
            contents[name] = draw_integers(op, row, name, generator)
        elif name in op.activations:
            is_small = distribution == "first_activation" and name != op.activations[0]
            draw = _small if is_small else DISTRIBUTIONS[distribution]
            contents[name] = draw(noise(tensor), dtype, generator).to(dtype)
        elif distribution == "strong":
            drawn = noise(tensor) * STRONG_SPREAD
            nonzero = torch.rand(drawn.shape, generator=generator, device=drawn.device) < 0.9
            contents[name] = (drawn * nonzero).to(dtype)
        else:
            contents[name] = (noise(tensor) * MODULATION_SPREAD).to(dtype)
    return contents
