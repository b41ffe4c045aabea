"""Release of outputs: the time that a side takes to free what its calls returned, outside the timed region."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.judge.record.sample import SideName


@dataclass
class ReleaseTimes:
    """Release times of the sides of one row, block by block."""

    _found_ns: dict[SideName, float] = field(default_factory=dict)  # per call
    _held: dict[SideName, int] = field(default_factory=dict)  # calls of the side's last block, if nothing ran since

    def note(self, side: SideName, release_ns: int, calls: int) -> None:
        """Record the release time of a side's last block, before its next block of `calls` calls starts.

        It counts only if the side did nothing else in between.
        """
        self._found_ns.pop(side, None)
        if before := self._held.pop(side, 0):
            self._found_ns[side] = release_ns / before
        self._held[side] = calls

    def disturb(self, *sides: SideName) -> None:
        """Forget the last block of these sides, because something else runs before their next one."""
        for side in sides:
            self._held.pop(side, None)

    def of(self, side: SideName) -> float | None:
        return self._found_ns.get(side)
