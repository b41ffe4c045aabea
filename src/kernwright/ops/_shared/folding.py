"""Folding: views with three axes of tensors that have more, for kernels over tokens. Nothing is copied.

A kernel needs only the address of each token and of its rows of modulation. So axes may be reordered, and two axes are
merged where every tensor has one stride for both. Of the axes that remain, the two longest become batches and tokens.
Two axes of tokens with one stride are also merged if modulations have one row per step of the outer axis; such steps
are called frames. Every other axis costs one launch per step. `native/folding.h` does the same for the native kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

AXES, MOST_AXES = 3, 16  # axes that a kernel takes, and the most that are folded into them
Given = Sequence[Tensor | None]
Views = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class FoldedAxis:
    """Leading axes that were merged into one: its size, and its stride in each tensor."""

    size: int = 1
    steps: tuple[int, ...] = ()

    def continues(self, inner: FoldedAxis) -> bool:
        """Return whether every tensor has one stride for this axis and an inner one."""
        return all(own == inner.size * step for own, step in zip(self.steps, inner.steps, strict=True))


def merged(*tensors: Tensor) -> list[FoldedAxis]:
    """Return the fewest merged leading axes that locate every row of every tensor, in the memory order of the last
    tensor."""
    first = tensors[0]
    axes = [
        FoldedAxis(size, tuple(tensor.stride(number) for tensor in tensors))
        for number, size in enumerate(first.shape[:-1])
        if size != 1  # the stride of an axis of size 1 has no meaning
    ]
    found: list[FoldedAxis] = []
    for inner in sorted(axes, key=lambda axis: -axis.steps[-1]):
        if found and found[-1].continues(inner):
            found[-1] = FoldedAxis(found[-1].size * inner.size, inner.steps)
        else:
            found.append(inner)
    return found


@dataclass(frozen=True)
class Fold:
    """The axes that become batches, tokens and frames, and those that cost one launch per step."""

    batch: FoldedAxis
    token: FoldedAxis
    frame: FoldedAxis
    walked: tuple[FoldedAxis, ...] = ()

    @property
    def covered(self) -> int:
        """Return the number of tokens of one launch."""
        return self.batch.size * self.token.size * self.frame.size


def folded(tokens: Given, modulations: Given) -> Iterator[Views]:
    """Yield views of tokens and modulations, in this order, for each launch.

    `tokens` have one shape, and the last of them is an output. `modulations` broadcast over that shape, which was
    checked before. Their views may be frames, `[B, F, 1, D]`.
    """
    x = tokens[0]
    assert x is not None
    if x.ndim <= AXES:
        yield (*tokens, *modulations)
        return
    # A single row or number for all tokens needs no view.
    spread = [own if own is None or own.ndim < 2 else own.expand(*x.shape[:-1], own.shape[-1]) for own in modulations]
    rows = [own for own in spread if own is not None and own.ndim > 1]
    members = [*rows, *(own for own in tokens if own is not None)]
    fold = _chosen(merged(*members), len(rows), len(members))
    for place in itertools.product(*(range(axis.size) for axis in fold.walked)):
        found = iter(_views(members, fold, place))
        behind = [own if own is None or own.ndim < 2 else next(found) for own in spread]
        yield (*(own if own is None else next(found) for own in tokens), *behind)


def _chosen(axes: Sequence[FoldedAxis], rows: int, members: int) -> Fold:
    """Return the fold with the fewest launches."""
    none = FoldedAxis(1, (0,) * members)

    def longest_but(*taken: int) -> int | None:
        others = [number for number in range(len(axes)) if number not in taken]
        return max(others, key=lambda number: axes[number].size, default=None)

    def fold(batch: int | None, token: int | None, frame: int | None = None) -> Fold:
        own = [none if number is None else axes[number] for number in (batch, token, frame)]
        rest = [axis for number, axis in enumerate(axes) if number not in (batch, token, frame)]
        return Fold(own[0], own[1], own[2], tuple(rest))

    token = longest_but()
    batch = None if token is None else longest_but(token)
    if token is not None and batch is not None and batch > token:
        batch, token = token, batch  # the rows of tokens are closer together in memory
    ways = [fold(batch, token)]
    if len(axes) > 2:
        for number in reversed(range(len(axes) - 1)):  # starts with the axes whose rows are closest together
            if _are_frames(axes[number], axes[number + 1], rows):
                ways.append(fold(longest_but(number, number + 1), number + 1, number))
    return max(ways, key=lambda way: way.covered)


def _are_frames(outer: FoldedAxis, inner: FoldedAxis, rows: int) -> bool:
    """Return whether two axes can become frames.

    Tokens must have one stride for both axes. The first `rows` tensors are modulations: they have one stride, too, or
    one row for all inner steps.
    """
    return all(
        far == inner.size * near or (number < rows and near == 0)
        for number, (far, near) in enumerate(zip(outer.steps, inner.steps, strict=True))
    )


def _views(members: Sequence[Tensor], fold: Fold, place: Sequence[int]) -> Iterator[Tensor]:
    for number, own in enumerate(members):
        batch, token, frame = (axis.steps[number] for axis in (fold.batch, fold.token, fold.frame))
        walked = (index * axis.steps[number] for index, axis in zip(place, fold.walked, strict=True))
        start, width, last = own.storage_offset() + sum(walked), own.shape[-1], own.stride(-1)
        if fold.frame.size > 1 and frame != fold.token.size * token:
            yield own.as_strided((fold.batch.size, fold.frame.size, 1, width), (batch, frame, 0, last), start)
        else:
            yield own.as_strided(
                (fold.batch.size, fold.frame.size * fold.token.size, width), (batch, token, last), start
            )
