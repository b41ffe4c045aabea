"""Half: one block of every side, in one order; the other half of a quad has the order mirrored."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.judge.block import Block
from kernwright.judge.overhead import Overhead
from kernwright.judge.pair import SideName


@dataclass
class Half:
    """What the judge's clock showed. How much of it were calls is for the quad's overhead to say."""

    blocks: dict[SideName, Block] = field(default_factory=dict)
    calls: dict[SideName, int] = field(default_factory=dict)
    exchanges: dict[SideName, int] = field(default_factory=dict)  # with a worker: one a block, or one a call
    with_events: list[tuple[int, int]] = field(default_factory=list)  # trusted sides' blocks, and the device's time
    released_ns: dict[SideName, float] = field(default_factory=dict)
    waited: frozenset[SideName] = frozenset()  # who was kept waiting for its processor
    slowest_ns: dict[SideName, float] = field(default_factory=dict)  # a call's, in tries that were not counted

    def ns_per_call(self, side: SideName, overhead: Overhead) -> float:
        took = overhead.taken_off(self.blocks[side].elapsed_ns, self.exchanges[side]) / self.calls[side]
        return max(took, self.slowest_ns.get(side, 0.0))

    def secured_ns(self, side: SideName) -> int:
        block = self.blocks[side]
        return block.elapsed_ns - block.running_ns
