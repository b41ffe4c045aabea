"""Block: some calls of one side between two readings of the judge's clock."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass
class Block:
    """One timed block as the judge saw it."""

    elapsed_ns: int
    running_ns: int  # until the worker was stopped; the judge's work follows
    processor_ns: int
    ready_ns: int
    pointers: tuple[int, ...]
    exchanges: int = 1

    @property
    def waiting_ns(self) -> int:
        """Return the time in which the worker was ready to run but had no processor.

        It is at most the kernel's count of waiting time, and at most the time in which the worker did not run. So
        neither sleeping nor threads that compete with each other increase it.
        """
        return max(0, min(self.ready_ns, self.running_ns - self.processor_ns))

    @property
    def idle_ns(self) -> int:
        """Return the time per exchange in which a worker with one thread neither ran nor waited for a processor."""
        return max(0, self.running_ns - self.processor_ns - self.waiting_ns) // self.exchanges

    @classmethod
    def joined(cls, blocks: Sequence[Block]) -> Block:
        """Return several blocks as one."""
        return cls(
            elapsed_ns=sum(block.elapsed_ns for block in blocks),
            running_ns=sum(block.running_ns for block in blocks),
            processor_ns=sum(block.processor_ns for block in blocks),
            ready_ns=sum(block.ready_ns for block in blocks),
            pointers=tuple(pointer for block in blocks for pointer in block.pointers),
            exchanges=sum(block.exchanges for block in blocks),
        )

    @classmethod
    def typical(cls, blocks: Sequence[Block]) -> Block:
        """Return several blocks as one, each with the median time, because a host has interruptions."""
        middle = statistics.median(block.elapsed_ns for block in blocks)
        return replace(cls.joined(blocks), elapsed_ns=round(len(blocks) * middle))
