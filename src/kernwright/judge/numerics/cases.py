"""Cases: the calls that a candidate must get right on a row before any of its time is believed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from kernwright.core.op import Op
from kernwright.judge.numerics.inputs import DISTRIBUTIONS
from kernwright.tasks.workload import Workload

MOST_LARGER = 64  # than the row's own, a secret size is along an axis
MOST_MORE = 2**17  # elements of a tensor: contents are drawn from a run of numbers that is not much longer
MOST_LISTED = 4096  # of more sizes hardly any is known


@dataclass(frozen=True)
class Case:
    """A row, perhaps at a neighbouring size, with inputs of one distribution."""

    row: Workload
    distribution: str

    @property
    def label(self) -> str:
        sizes = " ".join(f"{axis}={size}" for axis, size in self.row.axes.items())
        return f"{self.distribution} inputs, {sizes}" if sizes else f"{self.distribution} inputs"


def distributions_of(op: Op) -> list[str]:
    """Those that mean something for this op."""
    without = set() if op.propagates_nonfinite else {"nonfinite"}
    if len(op.activations) == 1:
        without.add("bare")
    return [name for name in DISTRIBUTIONS if name not in without]


def cases_for(op: Op, row: Workload, neighbours: tuple[str, ...], quick: bool = False) -> Iterator[Case]:
    """The frozen size with every distribution, then odd and prime sizes next to it."""
    distributions = distributions_of(op)
    if quick:
        distributions = ["normal", "offset", "mixed"]
    for distribution in distributions:
        yield Case(row, distribution)
    if row.set == "grid":
        return  # its rows are one another's neighbours
    axes = [axis for axis in neighbours if axis in row.axes]
    for number, sizes in enumerate(neighbour_sizes({axis: row.axes[axis] for axis in axes}, row.has_strided_tensors)):
        if quick and number >= 2:
            return
        yield Case(row.resized(sizes), ("normal", "mixed", "offset")[number % 3])


def secret_case(row: Workload, neighbours: tuple[str, ...], rng: random.Random) -> Case | None:
    """At a size that nobody can foresee, and hardly more memory than the row's; none where sizes cannot differ."""
    axes = {axis: row.axes[axis] for axis in neighbours if axis in row.axes}
    if not axes or row.set == "grid":
        return None
    grows = None if row.has_strided_tensors else rng.choice(list(axes))
    largest = max(tensor.elements for tensor in (row.concrete_inputs() | row.concrete_outputs()).values())
    sizes = {}
    for axis, size in axes.items():
        more = min(size, MOST_LARGER, size * MOST_MORE // max(1, largest)) if axis == grows else 0
        sizes[axis] = _secret_size(size, size + more, rng)
    return Case(row.resized(sizes), rng.choice(("normal", "mixed", "offset")))


def _secret_size(size: int, most: int, rng: random.Random) -> int:
    """None of those that cases are made of, where there are others."""
    known = {size, *(sizes["own"] for sizes in neighbour_sizes({"own": size}, only_smaller=False))}
    if most <= len(known) or most > MOST_LISTED:
        return rng.randint(1, most)
    return rng.choice([other for other in range(1, most + 1) if other not in known] or [size])


def neighbour_sizes(axes: dict[str, int], only_smaller: bool) -> Iterator[dict[str, int]]:
    """One axis at a time to an odd and a prime size beside its own, then all at once, then the smallest."""
    for axis, size in axes.items():
        for other in dict.fromkeys([_prime_below(size), size - 1, *([] if only_smaller else [size + 1])]):
            if other >= 1 and other != size:
                yield {axis: other}
    if len(axes) > 1:
        yield {axis: _prime_below(size) for axis, size in axes.items()}
    if axes:
        first = next(iter(axes))
        if axes[first] > 1:
            yield {first: 1}


def _prime_below(size: int) -> int:
    """The largest prime under size; 1 where there is none."""
    for candidate in range(size - 1, 1, -1):
        if all(candidate % divisor for divisor in range(2, int(candidate**0.5) + 1)):
            return candidate
    return 1
