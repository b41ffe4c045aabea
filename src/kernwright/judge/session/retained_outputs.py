"""RetainedOutputs: outputs of earlier calls that a worker keeps alive, as any caller may, and that the judge checks.

Within a block no two calls may return the same memory. Between blocks the worker frees its outputs. A side could
therefore return buffers from a ring that is longer than a block, even while a caller still uses them, and save the
allocations that other sides pay for. So the worker retains a few outputs, which are chosen at random. Later calls must
neither return their memory nor change their bytes. Memory that is no longer referenced may be reused.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

MIN_RETAINED, MAX_RETAINED = 2, 4  # few, because retained memory is not available to the next block
CALLS_PER_RETAINED = 16  # calls per block for each output beyond the minimum; large outputs mean few calls
_rng = random.SystemRandom()


@dataclass(frozen=True, eq=False)
class RetainedOutput:
    """The outputs of one call: their addresses in the worker, and copies of their values if they are to be compared."""

    pointers: Sequence[int]
    values: Mapping[str, Tensor]


class RetainedOutputs:
    """The outputs that the worker of one session retains. `sizes` are the bytes of each output of a call."""

    def __init__(self, slots: int, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.capacity = min(MAX_RETAINED, MIN_RETAINED + slots // CALLS_PER_RETAINED) if any(sizes) else 0
        self.held: list[RetainedOutput] = []
        self.dropped: list[RetainedOutput] = []  # no longer retained since the last choice; to be compared once more
        self._returned: list[Sequence[int]] = []  # outputs since the last choice, in the order of the calls
        self._choices = 0
        self._expired = False

    @property
    def extra_bytes(self) -> int:
        """The distance by which retained outputs may shift the outputs of a block in memory."""
        return (self.capacity + 1) * sum(self.sizes) if self.capacity else 0

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The address ranges of the retained outputs."""
        return [
            (start, start + size)
            for retained_output in self.held
            for start, size in zip(retained_output.pointers, self.sizes, strict=True)
        ]

    def note(self, pointers: Sequence[int]) -> None:
        """Add the outputs of calls, which the worker holds until the next choice."""
        if self.capacity:
            outputs = len(self.sizes)
            self._returned += [pointers[first : first + outputs] for first in range(0, len(pointers), outputs)]

    def choose(self, read: Callable[[Sequence[int]], Mapping[str, Tensor]]) -> list[int]:
        """Choose the outputs to retain. Return their indices in the worker's list of retained and new outputs.

        `read` returns copies of the outputs of one call. From the first choice on, the number of retained outputs is
        constant. The first one is retained to the end, because a ring of any length reuses it eventually. The others
        come from all previous blocks with equal probability, which reveals sides that reuse memory only later on.
        """
        returned, self._returned = self._returned, []
        before = self.held
        if self._expired:
            self._expired, self._choices = False, 0
            self.held, self.dropped = [], before
            return []
        kept = list(range(len(self.held)))
        new: list[int] = []
        if returned:
            self._choices += 1
            if len(kept) < self.capacity:
                new = _rng.sample(range(len(returned)), min(len(returned), self.capacity - len(kept)))
            elif _rng.random() * self._choices < self.capacity - 1:
                del kept[_rng.randrange(1, self.capacity)]
                new = [_rng.randrange(len(returned))]
        self.dropped = [output for index, output in enumerate(before) if index not in kept]
        self.held = [before[index] for index in kept]
        self.held += [RetainedOutput(returned[index], read(returned[index])) for index in new]
        return [*kept, *(len(before) + index for index in new)]

    def expire(self) -> None:
        """Drop all outputs at the next choice, including those of the calls before it."""
        self._expired = True

    def end(self) -> None:
        """Drop all outputs and retain none from now on."""
        self.capacity, self.held, self.dropped, self._returned = 0, [], self.held, []

    def overlaps(self, spans: Sequence[tuple[int, int]]) -> bool:
        """Return whether retained memory overlaps one of these spans, which must be sorted and disjoint."""
        for start, end in self.spans:
            before = bisect_left(spans, (end, 0))  # the number of spans that start before `end`
            if start < end and before and spans[before - 1][1] > start:
                return True
        return False
