"""Release of outputs: the time that a side takes to free what its calls returned, which is outside the timed region."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.judge.contest.pair import SideName


@dataclass
class ReleaseTimes:
    """Of one row's sides, block by block."""

    _found_ns: dict[SideName, float] = field(default_factory=dict)  # a call
    _held: dict[SideName, int] = field(default_factory=dict)  # calls of a side's block, when nothing came after it

    def note(self, side: SideName, release_ns: int, calls: int) -> None:
        """Before a block of so many calls: what letting go of its last one's outputs took, where that was the last that
        the side did."""
        self._found_ns.pop(side, None)
        if before := self._held.pop(side, 0):
            self._found_ns[side] = release_ns / before
        self._held[side] = calls

    def disturb(self, *sides: SideName) -> None:
        """Something else comes before their next block: what they hold then is not of the last one alone."""
        for side in sides:
            self._held.pop(side, None)

    def of(self, side: SideName) -> float | None:
        return self._found_ns.get(side)
