"""Half: one block of every side, in one order; the other half of a quad has the order mirrored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernwright.judge.block import Block
from kernwright.judge.overhead import Overhead
from kernwright.judge.pair import SideName
from kernwright.judge.quad import Quad
from kernwright.tasks.policy import Metric


@dataclass
class Half:
    """What the judge's clock showed. How much of it were calls is for the quad's overhead to say."""

    blocks: dict[SideName, Block] = field(default_factory=dict)
    calls: dict[SideName, int] = field(default_factory=dict)
    exchanges: dict[SideName, int] = field(default_factory=dict)  # with a worker: one a block, or one a call
    event_ns: dict[SideName, int] = field(default_factory=dict)  # trusted sides' blocks by the device's own clock
    released_ns: dict[SideName, float] = field(default_factory=dict)
    waited: frozenset[SideName] = frozenset()  # who was kept waiting for its processor
    redone: int = 0  # times that it was run again
    slowest_ns: dict[SideName, float] = field(default_factory=dict)  # a call's, in tries that were not counted

    def ns_per_call(self, side: SideName, overhead: Overhead) -> float:
        took = overhead.taken_off(self.blocks[side].elapsed_ns, self.exchanges[side]) / self.calls[side]
        return max(took, self.slowest_ns.get(side, 0.0))

    def by_events(self, side: SideName) -> float:
        return self.event_ns[side] / self.calls[side]

    @property
    def with_events(self) -> list[tuple[int, int]]:
        """How long blocks took, and how long by the device's own clock."""
        return [(self.blocks[side].elapsed_ns, events) for side, events in self.event_ns.items()]

    def secured_ns(self, side: SideName) -> int:
        block = self.blocks[side]
        return block.elapsed_ns - block.running_ns


def quad_of(
    metric: Metric, number: int, order: Sequence[SideName], first: Half, second: Half, overhead: Overhead,
    moved: Mapping[SideName, int],
) -> Quad:  # fmt: skip
    """Both halves of one, by the overhead of the moment."""
    now = overhead.as_of(first.with_events + second.with_events)
    halves = first, second
    released = {side: tuple(h.released_ns[side] for h in halves if side in h.released_ns) for side in order}
    told = [side for side in order if all(half.event_ns.get(side, 0) > 0 for half in halves)]
    return Quad(
        metric,
        number,
        list(order),
        first.redone + second.redone,
        first.waited | second.waited,
        {side: (first.ns_per_call(side, now), second.ns_per_call(side, now)) for side in order},
        {side: (first.secured_ns(side), second.secured_ns(side)) for side in order},
        dict(moved),
        released,
        {side: (first.by_events(side), second.by_events(side)) for side in told},
    )
