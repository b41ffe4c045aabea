"""Half-quads: every side of a row once; two of them in mirrored order make a quad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernwright.judge.process.block import Block
from kernwright.judge.record.sample import Quad, SideName
from kernwright.judge.rounds.overhead import Overhead
from kernwright.tasks.policy import Metric


@dataclass(frozen=True)
class DiscardedBlock:
    """A block that did not count, and the overhead at that time."""

    elapsed_ns: int
    calls: int
    overhead: Overhead


@dataclass
class HalfQuad:
    """One block of every side, as the judge's clock measured it, before the overhead is subtracted."""

    overhead: Overhead  # the last one measured
    blocks: dict[SideName, Block] = field(default_factory=dict)
    calls: dict[SideName, int] = field(default_factory=dict)
    exchanges: dict[SideName, int] = field(default_factory=dict)  # with a worker: one for each block, or for each call
    event_ns: dict[SideName, int] = field(default_factory=dict)  # blocks of trusted sides by the device's events
    released_ns: dict[SideName, float] = field(default_factory=dict)
    waited: frozenset[SideName] = frozenset()  # sides that waited for a processor
    redone: int = 0  # repeats
    tries: dict[SideName, list[DiscardedBlock]] = field(
        default_factory=dict
    )  # discarded blocks of untrusted sides; the slowest counts

    def ns_per_call(self, side: SideName, now: Overhead) -> float:
        """Return the time of a call without the overhead. Discarded blocks allow for the drift since then."""
        drift_ns = now.empty_ns - self.overhead.empty_ns
        block = self.blocks[side]
        took = [max(now.taken_off(block.elapsed_ns, self.exchanges[side]), now.least_ns(block)) / self.calls[side]]
        for one in self.tries.get(side, ()):
            took.append(one.overhead.drifted(drift_ns).taken_off(one.elapsed_ns) / max(1, one.calls))
        return max(took)

    def event_ns_per_call(self, side: SideName) -> float:
        return self.event_ns[side] / self.calls[side]

    def tells_events(self, side: SideName) -> bool:
        """Return whether the block's event time is plausible."""
        return 0 < self.event_ns.get(side, 0) < self.blocks[side].elapsed_ns

    @property
    def with_events(self) -> list[tuple[int, int]]:
        """Return (elapsed, event) nanoseconds of the blocks with plausible events whose side did not wait."""
        told = (side for side in self.event_ns if self.tells_events(side) and side not in self.waited)
        return [(self.blocks[side].elapsed_ns, self.event_ns[side]) for side in told]

    def secured_ns(self, side: SideName) -> int:
        block = self.blocks[side]
        return block.elapsed_ns - block.running_ns


def quad_of(
    metric: Metric,
    number: int,
    order: Sequence[SideName],
    first: HalfQuad,
    second: HalfQuad,
    moved: Mapping[SideName, int],
) -> Quad:
    """Combine two mirrored half-quads into a quad."""
    then, now = _overheads(first, second)
    halves = first, second
    released = {side: tuple(h.released_ns[side] for h in halves if side in h.released_ns) for side in order}
    timed_by_events = [side for side in order if all(half.tells_events(side) for half in halves)]
    return Quad(
        metric=metric,
        round=number,
        order=list(order),
        redone=first.redone + second.redone,
        kept_waiting=first.waited | second.waited,
        ns_per_call={side: (first.ns_per_call(side, then), second.ns_per_call(side, now)) for side in order},
        secured_ns={side: (first.secured_ns(side), second.secured_ns(side)) for side in order},
        moved=dict(moved),
        released_ns=released,
        event_ns_per_call={
            side: (first.event_ns_per_call(side), second.event_ns_per_call(side)) for side in timed_by_events
        },
        overhead_ns=(then.empty_ns, now.empty_ns),
    )


def _overheads(first: HalfQuad, second: HalfQuad) -> tuple[Overhead, Overhead]:
    """Return the overhead during each half.

    If it was measured again between the halves, because a side's outputs moved, each half uses only its own blocks.
    """
    if first.overhead == second.overhead:
        now = first.overhead.as_of(first.with_events + second.with_events)
        return now, now
    return first.overhead.as_of(first.with_events), second.overhead.as_of(second.with_events)
