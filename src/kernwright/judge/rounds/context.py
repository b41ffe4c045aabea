"""JudgementContext: what all rows of a judgement share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernwright.judge.contest.contestant import Contestant
from kernwright.judge.device.device import Device
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.numerics.secret_rng import CONTENT_SEED_BITS, SecretRng
from kernwright.judge.record.sample import SideName
from kernwright.judge.system.interrupt import Interrupt
from kernwright.tasks.policy import TimingPolicy
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload


@dataclass
class Slowness:
    """Slow phases of the device's memory over a whole judgement."""

    lasted: int = 0  # phases that lasted until the judge gave up waiting
    gone_with_workers: int = 0  # phases that ended together with the contenders' workers


@dataclass(frozen=True)
class JudgementContext:
    """The task, the device, the contestants and the random numbers of one judgement."""

    task: Task
    contestants: Mapping[SideName, Contestant]
    device: Device
    policy: TimingPolicy
    seed: int
    rng: SecretRng
    interrupt: Interrupt
    slowness: Slowness = field(default_factory=Slowness)

    @property
    def trusted(self) -> frozenset[SideName]:
        return frozenset(side for side, contestant in self.contestants.items() if contestant.trusted)

    @property
    def published(self) -> frozenset[SideName]:
        return frozenset(side for side, contestant in self.contestants.items() if contestant.published is not None)

    def checked(self, contender: SideName) -> Task:
        """Return the task with the sizes that this contender is checked at."""
        return self.task.at_frozen_sizes() if self.contestants[contender].at_frozen_sizes else self.task

    def pool(self, row: Workload) -> Pool:
        """Return the pool of contents for one row in one round. Each pool has its own seed."""
        return self.device.pool(row, self.rng.content_seed())

    def repeatable_pool(self, row: Workload) -> Pool:
        """Return the pool of the correctness cases of a row, which depends only on the seed and the row.

        So a failing case can be repeated without the other rows.
        """
        drawn = hashlib.sha256(f"kernwright {self.seed} cases of {row.id}".encode()).digest()
        return self.device.pool(row, int.from_bytes(drawn[:8], "little") >> (64 - CONTENT_SEED_BITS))
