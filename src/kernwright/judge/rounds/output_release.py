"""Release of outputs: the time that a side takes to free what its calls returned, which is outside the timed region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from kernwright.judge.contest.pair import SideName
from kernwright.judge.record.verdict import MetricResult
from kernwright.judge.rounds.quad import Sample

GAIN_SHARE = 0.5  # of a gain, that may be paid there
BASELINE_SHARE = 0.05  # of the baseline's time, that it may take more in any case
RELEASE_US = 3.0  # and as much
LEAST_RELEASES = 3  # quads that show it


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


def paid_on_release(quads: Sequence[Sample], deciding: MetricResult) -> str | None:
    """The reason not to believe who lets go of what its calls returned by much more work than the baseline."""
    known = [sample.released_ns for sample in quads]
    more = [
        mean(own["candidate"]) - mean(own["baseline"]) for own in known if own.get("candidate") and own.get("baseline")
    ]
    if len(more) < LEAST_RELEASES:
        return None
    longer_us = median(more) / 1e3
    gained = max(0.0, deciding.baseline_us - deciding.candidate_us)
    if longer_us <= max(GAIN_SHARE * gained, BASELINE_SHARE * deciding.baseline_us, RELEASE_US):
        return None
    return f"to let go of what a call returned takes {longer_us:.0f} us more than of the baseline's, which nobody times"
