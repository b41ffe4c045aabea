"""Overhead: what a block takes beside its calls: waking the worker, its answer, stopping it, securing its outputs.

It is found out on a baseline's twin and then followed on all trusted sides, so that nothing that a candidate does can
move it, and taken off every side's blocks alike. A block of no calls shows it, but for one thing: where calls have
kept a device busy, the same steps around them take longer. On an H200 an empty block takes 450 us; around 0.4 ms of
work it is 50 us more, around 1 to 5 ms 80 to 100. Left in, that would dilute every ratio. So where the device has
events, blocks with calls are held against these.

It drifts, too: by 100 us within a second, which is 4 % of a block. The blocks of trusted sides in a quad show what it
was just then, by the same events.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernwright.judge.session.session import OutputsMoved, Session
from kernwright.tasks.policy import Metric

EMPTY_BLOCKS = 5  # of which the middle one counts
FULL_BLOCKS, EMPTY_BESIDE = 3, 2  # empty ones after each full one: all of them see the same drift
EMPTY_EXCHANGES = 21  # of calls by themselves: short ones, which vary by a good part of what they take
SETTLED_NS = 1e6  # of work, from where on what it adds to the steps around it hardly grows
MOST_OVER_EMPTY = 1.0  # times an empty block: a twin whose events miss part of its work must not flatter all sides
LEAST_SHOWN = 3  # blocks that a drift is believed by
MOST_DRIFT = 0.5  # of what it was when it was measured, that it may have become in either direction


@dataclass(frozen=True)
class Overhead:
    """`more_ns`: on top of an empty block's, around calls that take a millisecond or longer."""

    empty_ns: float = 0.0
    more_ns: float = 0.0

    @classmethod
    def of(cls, session: Session, metric: Metric, calls: int) -> Overhead:
        """Of blocks of so many calls, or of the exchanges of `wall`. Empty ones after full ones: when these have shown
        where outputs lie, there may be more to read back."""
        if metric == "wall" or not session.tells_events:
            repeats = EMPTY_EXCHANGES if metric == "wall" and session.protocol_drifts else EMPTY_BLOCKS
            return cls(statistics.median(block.elapsed_ns for block in session.run_nothing(repeats)))
        found: list[tuple[int, int]] = []
        empties: list[int] = []
        for _ in range(FULL_BLOCKS):
            if (full := _full_block(session, metric, calls)) is None:
                empties.clear()
            else:
                found.append(full)
            empties += [block.elapsed_ns for block in session.run_nothing(EMPTY_BESIDE)]
        empty = statistics.median(empties)
        if not found:
            return cls(empty)
        beyond = statistics.median(elapsed - events for elapsed, events in found)
        busy = statistics.median(events for _, events in found)
        return cls(empty, min(max(0.0, beyond - empty) / _settled(busy), MOST_OVER_EMPTY * empty))

    def as_of(self, blocks: Sequence[tuple[int, int]]) -> Overhead:
        """What it was when these blocks ran: how long each took, and its calls by the device's own clock. Blocks with
        little work in them say nothing: what is added around that is known in proportion alone, and a side whose blocks
        are of another length would be off by what is wrong with it."""
        shown = [elapsed - events - self.more_ns for elapsed, events in blocks if events >= SETTLED_NS]
        if len(shown) < LEAST_SHOWN:
            return self
        room = MOST_DRIFT * self.empty_ns
        return self.drifted(min(max(statistics.median(shown) - self.empty_ns, -room), room))

    def drifted(self, by_ns: float) -> Overhead:
        return replace(self, empty_ns=self.empty_ns + by_ns)

    def taken_off(self, elapsed_ns: float, exchanges: int = 1) -> float:
        """What is left of a block's time for its calls; never nothing, since a logarithm follows."""
        busy = max(0.0, elapsed_ns - exchanges * self.empty_ns)
        return max(busy - self.more_ns, busy / (1 + self.more_ns / SETTLED_NS), elapsed_ns * 0.05)


def _settled(busy_ns: float) -> float:
    return min(1.0, max(busy_ns, 1.0) / SETTLED_NS)


def _full_block(session: Session, metric: Metric, calls: int) -> tuple[int, int] | None:
    """How long it took, and its calls by the device's own clock. What its slots hold does not matter: nothing is
    looked at."""
    session.prepare()
    session.ready()
    with contextlib.suppress(OutputsMoved):
        block, _ = session.run(range(calls), with_python=metric != "device")
        return block.elapsed_ns, session.event_ns()
    return None
