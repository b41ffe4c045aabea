"""Cases: the calls that a candidate must get right on a row before it is timed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from kernwright.core.op import Op
from kernwright.judge.numerics.inputs import DISTRIBUTIONS
from kernwright.tasks.workload import Workload

MAX_GROWTH = 64  # a secret size exceeds the row's size along an axis by at most this much
# A secret size adds at most this many elements to a tensor, because the pool of random numbers is not much longer.
MAX_EXTRA_ELEMENTS = 2**17
MAX_LISTED_SIZES = 4096  # above this, a random size is hardly ever a known one, so known sizes are not excluded


@dataclass(frozen=True)
class Case:
    """A row, possibly resized to a neighbouring size, with inputs of one distribution."""

    row: Workload
    distribution: str

    @property
    def label(self) -> str:
        sizes = " ".join(f"{axis}={size}" for axis, size in self.row.axes.items())
        return f"{self.distribution} inputs, {sizes}" if sizes else f"{self.distribution} inputs"


def distributions_of(op: Op) -> list[str]:
    """Return the input distributions that apply to this op."""
    excluded = set() if op.propagates_nonfinite else {"nonfinite"}
    if len(op.activations) == 1:
        excluded.add("first_activation")
    return [name for name in DISTRIBUTIONS if name not in excluded]


def cases_for(op: Op, row: Workload, neighbours: tuple[str, ...]) -> Iterator[Case]:
    """Yield the row's own size with every distribution, then odd and prime sizes next to it."""
    for distribution in distributions_of(op):
        yield Case(row, distribution)
    if row.set == "grid":
        return  # the rows of a grid already differ by a step in size
    axes = [axis for axis in neighbours if axis in row.axes]
    for number, sizes in enumerate(neighbour_sizes({axis: row.axes[axis] for axis in axes}, row.has_strided_tensors)):
        yield Case(row.resized(sizes), ("normal", "mixed", "offset")[number % 3])


def secret_case(row: Workload, neighbours: tuple[str, ...], rng: random.Random) -> Case | None:
    """Return a case of an unpredictable size that needs little more memory than the row; None if no axis may change."""
    axes = {axis: row.axes[axis] for axis in neighbours if axis in row.axes}
    if not axes or row.set == "grid":
        return None
    growing_axis = None if row.has_strided_tensors else rng.choice(list(axes))
    largest = max(tensor.elements for tensor in (row.concrete_inputs() | row.concrete_outputs()).values())
    sizes = {}
    for axis, size in axes.items():
        growth = min(size, MAX_GROWTH, size * MAX_EXTRA_ELEMENTS // max(1, largest)) if axis == growing_axis else 0
        sizes[axis] = _secret_size(size, size + growth, rng)
    return Case(row.resized(sizes), rng.choice(("normal", "mixed", "offset")))


def _secret_size(size: int, max_size: int, rng: random.Random) -> int:
    """Return a size that `cases_for` does not use, if there is one."""
    known = {size, *(sizes["axis"] for sizes in neighbour_sizes({"axis": size}, only_smaller=False))}
    if max_size <= len(known) or max_size > MAX_LISTED_SIZES:
        return rng.randint(1, max_size)
    return rng.choice([other for other in range(1, max_size + 1) if other not in known] or [size])


def neighbour_sizes(axes: dict[str, int], only_smaller: bool) -> Iterator[dict[str, int]]:
    """Yield changes of size: each axis to the sizes next to it and to a prime, all axes to a prime, the first to 1."""
    for axis, size in axes.items():
        for neighbour in dict.fromkeys([_prime_below(size), size - 1, *([] if only_smaller else [size + 1])]):
            if neighbour >= 1 and neighbour != size:
                yield {axis: neighbour}
    if len(axes) > 1:
        yield {axis: _prime_below(size) for axis, size in axes.items()}
    if axes:
        first = next(iter(axes))
        if axes[first] > 1:
            yield {first: 1}


def _prime_below(size: int) -> int:
    """Return the largest prime below size; 1 if there is none."""
    for candidate in range(size - 1, 1, -1):
        if all(candidate % divisor for divisor in range(2, int(candidate**0.5) + 1)):
            return candidate
    return 1
