"""Overlaps: whether two elements of a tensor, or of two tensors, share memory.

The answer is exact for any strides: views of one buffer may interleave row by row and share nothing.
`ops/_shared/native/overlaps.h` has the same check for the native kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

# Steps of a search before it gives up and answers that the tensors overlap. Real views need far fewer.
MOST_STEPS = 100_000


@dataclass(frozen=True)
class _Term:
    """The numbers `step * n`, with n from 0 to `most`.

    The other fields describe the sums of these numbers with those of all later terms: the largest sum, the greatest
    common divisor of all sums, and whether every multiple of it up to the largest is a sum.
    """

    step: int
    most: int
    farthest: int
    common: int
    is_gapless: bool


def _terms(steps: Sequence[tuple[int, int]]) -> list[_Term]:
    """Return the terms by step, the largest first. Steps of the same size are merged."""
    together: dict[int, int] = {}
    for step, most in steps:
        if step > 0 and most > 0:
            together[step] = together.get(step, 0) + most
    found: list[_Term] = []
    farthest, common, is_gapless = 0, 0, True
    for step, most in sorted(together.items()):
        is_gapless = is_gapless and (common == 0 or (step % common == 0 and step <= farthest + common))
        common, farthest = math.gcd(common, step), farthest + step * most
        found.append(_Term(step, most, farthest, common, is_gapless))
    return found[::-1]


def add_up(steps: Sequence[tuple[int, int]], total: int) -> bool:
    """Return whether `step * n`, with one n from 0 to `most` for each pair (step, most), can add up to a total.

    The terms are searched from the largest step: few of its multiples leave a rest that the smaller ones can reach.
    """
    terms, left = _terms(steps), MOST_STEPS

    def reach(first: int, total: int) -> bool:
        nonlocal left
        if total == 0 or left == 0:
            return True
        left -= 1
        if first == len(terms) or total < 0:
            return False
        own = terms[first]
        if total > own.farthest or total % own.common:
            return False
        if own.is_gapless:
            return True
        least = max(0, -((own.farthest - own.step * own.most - total) // own.step))
        return any(
            reach(first + 1, total - n * own.step) for n in range(min(own.most, total // own.step), least - 1, -1)
        )

    return reach(0, total)


def overlaps_itself(own: Tensor) -> bool:
    """Return whether two elements of a tensor share memory.

    For two such elements, the distance along the axis with the largest stride in which they differ equals the distance
    along the other axes.
    """
    if own.numel() == 0:
        return False
    axes = sorted((step, size - 1) for step, size in zip(own.stride(), own.shape, strict=True) if size > 1)
    reach = 0
    for outer, (step, last) in enumerate(axes):
        if step == 0:
            return True
        if step <= reach:
            inner = [(near, 2 * most) for near, most in axes[:outer]]
            if add_up([(step, last - 1), *inner], reach - step):
                return True
        reach += step * last
    return False


def share_bytes(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors share a byte. Both must have memory and elements."""
    at, other_at = one.data_ptr(), other.data_ptr()
    if at == other_at:
        return True
    last, other_last = _last_byte(one), _last_byte(other)
    if at + last < other_at or other_at + other_last < at:
        return False
    # The distance from the first byte of one to the last byte of the other, split at the shared byte.
    return add_up([*_byte_steps(one), *_byte_steps(other)], other_at + other_last - at)


def _byte_steps(own: Tensor) -> list[tuple[int, int]]:
    steps = zip(own.stride(), own.shape, strict=True)
    return [(1, own.itemsize - 1), *((step * own.itemsize, size - 1) for step, size in steps)]


def _last_byte(own: Tensor) -> int:
    return sum(step * most for step, most in _byte_steps(own))
