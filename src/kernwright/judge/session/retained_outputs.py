"""RetainedOutputs: outputs of earlier calls that a worker keeps alive, as any caller may, while the judge watches them.

Within a block no two calls may share memory. Between blocks a worker lets go of what it was given; from a ring of more
buffers than a block has calls a side could then hand out the same ones again, whoever still holds them, and be spared
the allocation that all others pay for. So some outputs are not let go of, and nobody can foresee which: no later call
may return their memory, and their bytes stay. Memory that nobody holds any more is anyone's to hand out.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

LEAST, MOST = 2, 4  # few: what is held is missing when the next block allocates
CALLS_EACH = 16  # of a block, for each beyond the least: where outputs are large, calls are few
_secret = random.SystemRandom()


@dataclass(frozen=True, eq=False)
class RetainedOutput:
    """One call's outputs: where they lie in the worker's memory, and what they were, if they are watched."""

    pointers: Sequence[int]
    values: Mapping[str, Tensor]


class RetainedOutputs:
    """What one session has its worker hold. `sizes`: the bytes of a call's outputs."""

    def __init__(self, slots: int, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.most = min(MOST, LEAST + slots // CALLS_EACH) if any(sizes) else 0
        self.held: list[RetainedOutput] = []
        self.parting: list[
            RetainedOutput
        ] = []  # let go of by the last choice: to be looked at before the worker does so
        self._given: list[Sequence[int]] = []  # since the last choice, in the order of the calls
        self._choices = 0
        self._expired = False

    @property
    def room(self) -> int:
        """Bytes that a block's outputs may lie further up in memory than if nothing were held."""
        return (self.most + 1) * sum(self.sizes) if self.most else 0

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The memory that is held."""
        return [
            (start, start + size)
            for retained_output in self.held
            for start, size in zip(retained_output.pointers, self.sizes, strict=True)
        ]

    def note(self, pointers: Sequence[int]) -> None:
        """Where calls left their outputs: the worker has these from now on, until the next choice."""
        if self.most:
            outputs = len(self.sizes)
            self._given += [pointers[first : first + outputs] for first in range(0, len(pointers), outputs)]

    def choose(self, read: Callable[[Sequence[int]], Mapping[str, Tensor]]) -> list[int]:
        """What the worker is to go on holding, as places in all that it has: what it holds, then what it was given.
        `read` takes copies of a call's outputs.

        As many at any time, from the first choice on. The first stays to the end: a ring of any length comes round to
        it. Any other is as likely to be of one block so far as of another, for sides that are careful at first.
        """
        given, self._given = self._given, []
        before = self.held
        if self._expired:
            self._expired, self._choices = False, 0
            self.held, self.parting = [], before
            return []
        stay = list(range(len(self.held)))
        fresh: list[int] = []
        if given:
            self._choices += 1
            if len(stay) < self.most:
                fresh = _secret.sample(range(len(given)), min(len(given), self.most - len(stay)))
            elif _secret.random() * self._choices < self.most - 1:
                del stay[_secret.randrange(1, self.most)]
                fresh = [_secret.randrange(len(given))]
        self.parting = [retained_output for place, retained_output in enumerate(before) if place not in stay]
        self.held = [before[place] for place in stay]
        self.held += [RetainedOutput(given[number], read(given[number])) for number in fresh]
        return [*stay, *(len(before) + number for number in fresh)]

    def expire(self) -> None:
        """At the next choice all are let go of, and none is taken of the calls before it."""
        self._expired = True

    def end(self) -> None:
        """All are let go of, and from here on nothing is held."""
        self.most, self.held, self.parting, self._given = 0, [], self.held, []

    def lie_in(self, spans: Sequence[tuple[int, int]]) -> bool:
        """Whether one of these spans, sorted and apart from each other, is in part memory that is held."""
        for start, end in self.spans:
            before = bisect_left(spans, (end, 0))  # so many start before its end
            if start < end and before and spans[before - 1][1] > start:
                return True
        return False
