"""Quad: every side of a row once, then every side again in mirrored order; and what it says of one pair."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernwright.judge.pair import Pair, Role, SideName
from kernwright.tasks.policy import Metric


@dataclass
class Sample:
    """One quad of one metric, of one pair: its sides' two blocks, nanoseconds a call, mirrored in time."""

    metric: Metric
    round: int
    order: list[Role]
    redone: int
    busy: bool
    ns_per_call: dict[Role, tuple[float, float]]
    secured_ns: dict[Role, tuple[int, int]] = field(default_factory=dict)  # of a block, after the side stood still
    moved: int = 0  # times that a half was run again, since outputs lay elsewhere than before
    longer: float = 1.0  # times as long as at first, its blocks were
    released_ns: dict[Role, tuple[float, ...]] = field(default_factory=dict)  # a call's, of the blocks before these
    overhead_ns: tuple[float, float] = (0.0, 0.0)  # an empty block's, that was taken off in either half
    by_events: bool = False  # whether the device's own clock told these times, not the judge's

    def log_ratio(self, over: Role, under: Role) -> float:
        """log(over / under) with the mirrored blocks averaged, so that linear drift cancels."""
        a, b = self.ns_per_call[over], self.ns_per_call[under]
        return (math.log(a[0]) + math.log(a[1]) - math.log(b[0]) - math.log(b[1])) / 2

    def mean_us(self, side: Role) -> float:
        first, second = self.ns_per_call[side]
        return math.sqrt(first * second) / 1e3


@dataclass(frozen=True)
class Quad:
    """All sides' blocks. Whoever stands between a pair's two blocks of a half stands there mirrored in the other."""

    metric: Metric
    round: int
    order: list[SideName]
    redone: int
    kept_waiting: frozenset[SideName]  # by a busy machine, in a half that was run often enough
    ns_per_call: dict[SideName, tuple[float, float]]
    secured_ns: dict[SideName, tuple[int, int]] = field(default_factory=dict)
    moved: dict[SideName, int] = field(default_factory=dict)
    released_ns: dict[SideName, tuple[float, ...]] = field(default_factory=dict)
    event_ns_per_call: dict[SideName, tuple[float, float]] = field(default_factory=dict)  # of trusted sides
    overhead_ns: tuple[float, float] = (0.0, 0.0)

    def of(self, pair: Pair, longer: float = 1.0) -> Sample:
        """As if nobody else had been there.

        Kernels of sides that are all trusted are timed by the device's own events, in which nothing of the protocol is.
        What a worker says of itself is no candidate's time, nor that of whom it is held against.
        """
        roles = pair.roles
        by_events = self.metric == "device" and roles.keys() <= self.event_ns_per_call.keys()
        times = self.event_ns_per_call if by_events else self.ns_per_call
        return Sample(
            self.metric,
            self.round,
            [roles[side] for side in self.order if side in roles],
            self.redone,
            not self.kept_waiting.isdisjoint(roles),
            {roles[side]: ns for side, ns in times.items() if side in roles},
            {roles[side]: ns for side, ns in self.secured_ns.items() if side in roles},
            sum(self.moved.get(side, 0) for side in roles),
            longer,
            {roles[side]: ns for side, ns in self.released_ns.items() if side in roles},
            self.overhead_ns,
            by_events,
        )
