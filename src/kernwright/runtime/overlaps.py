"""Overlaps: whether elements of a tensor, or of two, lie on top of each other.

Exact, of any strides: tensors cut out of one buffer may lie between each other's rows and share nothing.
`ops/_shared/native/overlaps.h` says the same for the native kernels, which check for themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

# Nobody cuts tensors so that this is not enough; of those that are made so to hold a program up nobody knows.
MOST_STEPS = 100_000


@dataclass(frozen=True)
class _Term:
    """The numbers `step * n`, with n from 0 to `most`, and of their sums with those of all terms behind it: the
    largest, what divides all, and whether they are all multiples of that up to the largest."""

    step: int
    most: int
    farthest: int
    common: int
    is_gapless: bool


def _terms(steps: Sequence[tuple[int, int]]) -> list[_Term]:
    """By size, the largest first; those of one size are one."""
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
    """Whether some of the numbers `step * n`, one of each pair with n from 0 to its second number, add up to a total.

    As all terms ahead of one are larger, few of its multiples leave what those behind it can make up.
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
    """Whether two of its elements lie in one place: then their distance along the farthest axis that tells them apart
    is made up for by the others."""
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
    """Whether a byte of one is a byte of the other; of tensors that have memory, and elements."""
    at, other_at = one.data_ptr(), other.data_ptr()
    if at == other_at:
        return True
    last, other_last = _last_byte(one), _last_byte(other)
    if at + last < other_at or other_at + other_last < at:
        return False
    # From the first byte of one to its others, and from those of the other to its last.
    return add_up([*_byte_steps(one), *_byte_steps(other)], other_at + other_last - at)


def _byte_steps(own: Tensor) -> list[tuple[int, int]]:
    steps = zip(own.stride(), own.shape, strict=True)
    return [(1, own.itemsize - 1), *((step * own.itemsize, size - 1) for step, size in steps)]


def _last_byte(own: Tensor) -> int:
    return sum(step * most for step, most in _byte_steps(own))
