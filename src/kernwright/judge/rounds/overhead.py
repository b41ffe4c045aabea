"""Overhead: the part of a block's time that is not its calls: waking the worker, its answer, stopping it, securing
its outputs.

The judge measures it on a baseline's twin and tracks it on all trusted sides, so that a candidate cannot influence it,
and subtracts it from every side's blocks alike. An empty block shows most of it. After calls have kept a device busy,
the same steps take longer: on an H200 an empty block takes 450 us, with 0.4 ms of work 50 us more, with 1 to 5 ms 80 to
100 us more. If this were not subtracted, it would dilute every ratio. Where the device has events, the judge therefore
compares blocks with their events.

The overhead also drifts, by 100 us within a second, which is 4 % of a block. The events of the trusted sides' blocks in
a quad show its value at that moment.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernwright.judge.process.block import Block
from kernwright.judge.record.sample import SideName
from kernwright.judge.session.session import OutputsMoved, Session
from kernwright.tasks.policy import Metric

EMPTY_BLOCKS = 5  # the median counts
FULL_BLOCKS, EMPTY_BESIDE = 3, 2  # empty blocks after each full one, so that all see the same drift
EMPTY_EXCHANGES = 21  # exchanges of single calls; they are short and vary a lot
SETTLED_NS = 1e6  # work from which on the additional overhead hardly grows
MOST_OVER_EMPTY = 1.0  # times an empty block: events that miss part of the twin's work must not flatter all sides
LEAST_SHOWN = 3  # blocks needed to believe in a drift
MOST_DRIFT = 0.5  # largest drift in either direction, as a share of the measured overhead
LEAST_IDLE_BLOCKS = 8  # blocks of a side, and of the trusted sides, before anyone is accused of an early answer
MORE_EMPTY_BLOCKS = 60  # empty blocks that are run before an accusation: few of them may all be slow on a busy machine
LEAST_IDLE = 0.7  # share of the expected idle time below which a worker did not wait after its answer


@dataclass(frozen=True)
class Overhead:
    """The time of an empty block, and `more_ns` on top of it around calls that take a millisecond or longer."""

    empty_ns: float = 0.0
    more_ns: float = 0.0
    # Processor time and least idle time of a worker in an empty block. None where they show nothing.
    processor_ns: float | None = field(default=None, compare=False)
    idle_ns: float | None = field(default=None, compare=False)

    @classmethod
    def of(cls, session: Session, metric: Metric, calls: int) -> Overhead:
        """Measure the overhead of blocks of `calls` calls, or of the exchanges of `wall`.

        Empty blocks run after full ones: once those have shown where outputs lie, there may be more to read back.
        """
        if metric == "wall" or not session.tells_events:
            repeats = EMPTY_EXCHANGES if metric == "wall" and session.protocol_drifts else EMPTY_BLOCKS
            blocks = session.run_empty_blocks(repeats)
            empty_ns = statistics.median(block.elapsed_ns for block in blocks)
            if not _shows_idle_time(session):
                return cls(empty_ns)
            processor_ns = statistics.median(block.processor_ns for block in blocks)
            return cls(empty_ns, processor_ns=processor_ns, idle_ns=min(_idle_times(blocks)))
        found: list[tuple[int, int]] = []
        empties: list[int] = []
        for _ in range(FULL_BLOCKS):
            if (full := _full_block(session, metric, calls)) is None:
                empties.clear()
            else:
                found.append(full)
            empties += [block.elapsed_ns for block in session.run_empty_blocks(EMPTY_BESIDE)]
        empty = statistics.median(empties)
        if not found:
            return cls(empty)
        beyond = statistics.median(elapsed - events for elapsed, events in found)
        busy = statistics.median(events for _, events in found)
        return cls(empty, min(max(0.0, beyond - empty) / _settled(busy), MOST_OVER_EMPTY * empty))

    def as_of(self, blocks: Sequence[tuple[int, int]]) -> Overhead:
        """Return the overhead at the time of these blocks, given as (elapsed, event) nanoseconds.

        Blocks with little work do not count. For them, the overhead that work adds is only estimated in proportion to
        the work, and the error of this estimate would be charged to sides whose blocks have another length.
        """
        shown = [elapsed - events - self.more_ns for elapsed, events in blocks if events >= SETTLED_NS]
        if len(shown) < LEAST_SHOWN:
            return self
        room = MOST_DRIFT * self.empty_ns
        return self.drifted(min(max(statistics.median(shown) - self.empty_ns, -room), room))

    def drifted(self, by_ns: float) -> Overhead:
        return replace(self, empty_ns=self.empty_ns + by_ns)

    def with_least_idle(self, session: Session) -> Overhead:
        """Return the same overhead with the least idle time of many more empty blocks."""
        if self.idle_ns is None:
            return self
        return replace(self, idle_ns=min(self.idle_ns, *_idle_times(session.run_empty_blocks(MORE_EMPTY_BLOCKS))))

    def taken_off(self, elapsed_ns: float, exchanges: int = 1) -> float:
        """Return the time of a block's calls. It stays above zero, because a logarithm follows."""
        busy = max(0.0, elapsed_ns - exchanges * self.empty_ns)
        return max(busy - self.more_ns, busy / (1 + self.more_ns / SETTLED_NS), elapsed_ns * 0.05)

    def least_ns(self, block: Block) -> float:
        """Return the processor time that a worker used for its calls. No call takes less on one thread.

        The time from a worker's answer to its stop is subtracted as overhead. A worker that answers before its last
        output is written, and works in this time, would not pay for it otherwise.
        """
        if self.processor_ns is None:
            return 0.0
        return block.processor_ns - block.exchanges * self.processor_ns


@dataclass
class IdleTimes:
    """The idle times of workers in the blocks of a metric, which show work after the answer to the judge.

    From its answer until it is stopped, an honest worker waits for the next request. A side that answers before its
    last output is written works in this time, so its worker is idle for a shorter time than those of the trusted sides.
    """

    trusted: list[int] = field(default_factory=list)
    untrusted: dict[SideName, list[int]] = field(default_factory=dict)

    def note(self, side: SideName, block: Block, is_trusted: bool) -> None:
        (self.trusted if is_trusted else self.untrusted.setdefault(side, [])).append(block.idle_ns)

    def answers_early(self, side: SideName, overhead: Overhead) -> bool:
        """Return whether in half of its blocks a side's worker was idle for a much shorter time than any trusted one.

        A short idle time is no accident: it takes some time to wake a process and to stop it, even on a busy machine.
        An empty block shows the least: the longer a block, the longer it takes to wake the judge.
        """
        own = self.untrusted.get(side, [])
        if overhead.idle_ns is None or min(len(own), len(self.trusted)) < LEAST_IDLE_BLOCKS:
            return False
        expected = min(*self.trusted, overhead.idle_ns)
        return statistics.median(own) < LEAST_IDLE * expected


def _shows_idle_time(session: Session) -> bool:
    """Return whether the processor time of a block shows how long its worker was idle.

    A worker with several threads may be idle in some of them. On a GPU a worker polls while the device works.
    """
    return not session.tells_events and session.worker.threads == 1 and session.worker.processor is not None


def _idle_times(blocks: Sequence[Block]) -> list[int]:
    return [block.idle_ns for block in blocks]


def _settled(busy_ns: float) -> float:
    return min(1.0, max(busy_ns, 1.0) / SETTLED_NS)


def _full_block(session: Session, metric: Metric, calls: int) -> tuple[int, int] | None:
    """Return (elapsed, event) nanoseconds of a block with calls, or None if its outputs moved.

    The contents of the slots do not matter, since no output is checked.
    """
    session.prepare()
    session.ready()
    with contextlib.suppress(OutputsMoved):
        block, _ = session.run(range(calls), with_python=metric != "device")
        return block.elapsed_ns, session.event_ns()
    return None
