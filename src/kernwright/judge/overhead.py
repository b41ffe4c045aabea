"""Overhead: what a block takes beside its calls: waking the worker, its answer, stopping it, securing its outputs.

It is found out on the baseline's twin, so that nothing that a candidate does can move it, and taken off every side's
blocks alike. A block of no calls shows it, but for one thing: where calls have kept a device busy for milliseconds, the
same steps around them take longer (on an H200 some 100 us of 450). Left in, that would dilute every ratio. So where the
device has events, blocks with calls are held against these.
"""

from __future__ import annotations

import contextlib
import statistics

from kernwright.judge.session import OutputsMoved, Session
from kernwright.tasks.policy import Metric

EMPTY_BLOCKS, FULL_BLOCKS = 5, 3  # of which the middle one counts
MOST_OVER_EMPTY = 3.0  # a twin whose events miss part of its work must not make all sides look faster


def overhead_ns(session: Session, metric: Metric, calls: int) -> float:
    """Of a block of so many calls, or of one exchange of `wall`."""
    empty = statistics.median(block.elapsed_ns for block in session.run_nothing(EMPTY_BLOCKS))
    if metric == "wall" or not session.tells_events:
        return empty
    beyond = [ns for _ in range(FULL_BLOCKS) if (ns := _beyond_events_ns(session, metric, calls)) is not None]
    return min(max(empty, statistics.median(beyond)), MOST_OVER_EMPTY * empty) if beyond else empty


def _beyond_events_ns(session: Session, metric: Metric, calls: int) -> float | None:
    """What its slots hold does not matter: nothing is looked at."""
    session.prepare()
    session.ready()
    with contextlib.suppress(OutputsMoved):
        block, _ = session.run(range(calls), with_python=metric != "device")
        return block.elapsed_ns - session.event_ns()
    return None
