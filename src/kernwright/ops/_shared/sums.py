"""Sum: two tensors that broadcast, with their axes folded into batches, tokens and channels. Nothing is copied."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernwright.ops._shared.checks import broadcast_shape
from kernwright.runtime.outputs import rows_like

WIDEST = 2**31 - 4097  # columns are counted in 32 bits


def sum_like(a: Tensor, b: Tensor) -> Tensor:
    """Return an uninitialized sum. It has the memory layout of the larger summand, as in the eager chain."""
    larger = a if a.numel() >= b.numel() else b
    shape, dtype = broadcast_shape(a.shape, b.shape), torch.result_type(a, b)
    return rows_like(larger, dtype) if larger.shape == shape else torch.empty(shape, dtype=dtype, device=a.device)


@dataclass(frozen=True)
class Axis:
    """An axis of the result: its size, and its stride in x, in the other summand and in the result."""

    size: int = 1
    x: int = 0
    shift: int = 0
    y: int = 0


@dataclass(frozen=True)
class Sum:
    """A sum over batches, tokens and channels (`last`), with one launch per step of the axes in `walked`.

    x has the dtype of the result. The other summand, `shift`, may broadcast over it.
    """

    x: Tensor
    shift: Tensor
    batch: Axis
    token: Axis
    last: Axis
    walked: tuple[Axis, ...] = ()

    @property
    def elements(self) -> int:
        """Return the number of elements of the result."""
        axes = (self.batch, self.token, self.last, *self.walked)
        return math.prod(axis.size for axis in axes)

    def steps(self, y: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield x, shift and the result of each launch, as views that start at its first element."""
        for place in itertools.product(*(range(axis.size) for axis in self.walked)):
            walked = list(zip(place, self.walked, strict=True))
            yield (
                _from(self.x, sum(index * axis.x for index, axis in walked)),
                _from(self.shift, sum(index * axis.shift for index, axis in walked)),
                _from(y, sum(index * axis.y for index, axis in walked)),
            )


def folded_sum(a: Tensor, b: Tensor, out_steps: Sequence[int] | None = None) -> Sum | None:
    """Return the folded sum, or None if its axes cannot be folded into rows of channels in the result's dtype.

    `out_steps` are the strides of the result; without them the result is one that `sum_like` makes.
    """
    shape = broadcast_shape(a.shape, b.shape)
    result = torch.result_type(a, b)
    if a.dtype != b.dtype and (a.ndim == 0 or b.ndim == 0):
        return None
    steps = sum_like(a.to("meta"), b.to("meta")).stride() if out_steps is None else out_steps
    orders = ((a, b), (b, a)) if a.numel() >= b.numel() else ((b, a), (a, b))
    for x, shift in orders:
        if x.dtype == result and (found := _folded(x, shift, shape, steps)):
            return found
    return None


def _folded(x: Tensor, shift: Tensor, shape: Sequence[int], steps: Sequence[int]) -> Sum | None:
    axes: list[Axis] = []
    for size, own, other, y in zip(shape, *(_steps(t, shape) for t in (x, shift)), steps, strict=True):
        if size == 1:
            continue
        axis = Axis(size, own, other, y)
        if axes and _is_one_stride(axes[-1], axis):
            axes[-1] = Axis(axes[-1].size * size, own, other, y)
        else:
            axes.append(axis)
    last = axes.pop() if axes else Axis(1, 1, 0, 1)
    if last.x != 1 or last.shift not in (0, 1) or last.y != 1:
        if shape[-1] != 1:
            return None
        axes, last = [*axes, last], Axis(1, 1, 0, 1)  # rows of one channel may have gaps between them
    if last.size > WIDEST:
        return None
    # The two longest axes are batches and tokens, in their order. The others cost one launch per step.
    longest = sorted(range(len(axes)), key=lambda number: -axes[number].size)[:2]
    *batch, token = (axes[number] for number in sorted(longest)) if axes else [Axis()]
    walked = [axis for number, axis in enumerate(axes) if number not in longest]
    return Sum(x=x, shift=shift, batch=batch[0] if batch else Axis(), token=token, last=last, walked=tuple(walked))


def _from(tensor: Tensor, start: int) -> Tensor:
    """Return a view that starts some elements later. Kernels use only its address."""
    return tensor if start == 0 else tensor.as_strided((), (), tensor.storage_offset() + start)


def _steps(tensor: Tensor, shape: Sequence[int]) -> list[int]:
    own = [0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
    return [0] * (len(shape) - len(own)) + own


def _is_one_stride(outer: Axis, inner: Axis) -> bool:
    """Return whether every tensor has one stride for both axes."""
    pairs = ((outer.x, inner.x), (outer.shift, inner.shift), (outer.y, inner.y))
    return all(far == inner.size * near for far, near in pairs) and outer.size * inner.size <= WIDEST
