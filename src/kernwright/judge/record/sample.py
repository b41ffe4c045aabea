"""Sample: the raw times of a quad of all sides or of one pair; RowSamples: the figures of a row's samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from statistics import median
from typing import Any, Literal

from kernwright.judge.record.decision import level_of, noise_band, outcome_of
from kernwright.judge.record.statistics import Interval, least_quads, signed_rank_interval
from kernwright.judge.record.verdict import MetricResult, Unavailable
from kernwright.tasks.policy import Metric, TimingPolicy

SideName = str  # the name of a side in a judgement: its role, with a number unless it is the first of its role
Role = Literal["baseline", "again", "candidate"]  # `again` is the baseline's twin, which gives the noise band
TOO_FEW = "too few quads for an interval"


@dataclass(kw_only=True)
class Sample:
    """One quad of one metric and one pair: the times of two blocks of each side, in mirrored order."""

    metric: Metric
    round: int
    order: list[Role]
    redone: int
    busy: bool
    ns_per_call: dict[Role, tuple[float, float]]
    # The part of each block after the worker stopped, in which the judge copies the outputs.
    secured_ns: dict[Role, tuple[int, int]] = field(default_factory=dict)
    moved: int = 0  # number of halves that were repeated because outputs had moved
    longer: float = 1.0  # length of the blocks as a multiple of their first length
    released_ns: dict[Role, tuple[float, ...]] = field(default_factory=dict)  # per call, outputs of previous blocks
    overhead_ns: tuple[float, float] = (0.0, 0.0)  # time of an empty block, subtracted in each half
    by_events: bool = False  # True if the times come from device events instead of the judge's clock
    quad: Quad | None = field(default=None, repr=False, compare=False)  # the quad of all sides that contains it

    def log_ratio(self, over: Role, under: Role) -> float:
        """Return log(over / under) with the mirrored blocks averaged, so that linear drift cancels."""
        a, b = self.ns_per_call[over], self.ns_per_call[under]
        return (math.log(a[0]) + math.log(a[1]) - math.log(b[0]) - math.log(b[1])) / 2

    def mean_us(self, side: Role) -> float:
        first, second = self.ns_per_call[side]
        return math.sqrt(first * second) / 1e3


@dataclass(frozen=True, eq=False, kw_only=True)
class Quad:
    """The times of two blocks of every side. The second half has the sides in the reverse order of the first."""

    metric: Metric
    round: int
    order: list[SideName]
    redone: int
    kept_waiting: frozenset[SideName]  # sides that waited for a processor in spite of all repeats
    ns_per_call: dict[SideName, tuple[float, float]]
    secured_ns: dict[SideName, tuple[int, int]] = field(default_factory=dict)
    moved: dict[SideName, int] = field(default_factory=dict)
    released_ns: dict[SideName, tuple[float, ...]] = field(default_factory=dict)
    event_ns_per_call: dict[SideName, tuple[float, float]] = field(default_factory=dict)  # times of trusted sides
    overhead_ns: tuple[float, float] = (0.0, 0.0)

    def of(self, roles: Mapping[SideName, Role], longer: float = 1.0) -> Sample:
        """Return the sample of one pair, as if no other side had been there.

        If all sides of the pair are trusted, `device` is timed by device events, which exclude the overhead of the
        protocol. Events are reported by the worker, so they are not used for a pair with a candidate.
        """
        by_events = self.metric == "device" and roles.keys() <= self.event_ns_per_call.keys()
        times = self.event_ns_per_call if by_events else self.ns_per_call
        return Sample(
            metric=self.metric,
            round=self.round,
            order=[roles[side] for side in self.order if side in roles],
            redone=self.redone,
            busy=not self.kept_waiting.isdisjoint(roles),
            ns_per_call={roles[side]: ns for side, ns in times.items() if side in roles},
            secured_ns={roles[side]: ns for side, ns in self.secured_ns.items() if side in roles},
            moved=sum(self.moved.get(side, 0) for side in roles),
            longer=longer,
            released_ns={roles[side]: ns for side, ns in self.released_ns.items() if side in roles},
            overhead_ns=self.overhead_ns,
            by_events=by_events,
            quad=self,
        )

    def stored(self) -> dict[str, Any]:
        return asdict(self) | {"kept_waiting": sorted(self.kept_waiting)}

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Quad:
        return cls(**{**stored, "kept_waiting": frozenset(stored["kept_waiting"])})


@dataclass(frozen=True)
class RowSamples:
    """All samples of one row of one pair, and the metrics that were not measured, with the reason."""

    samples: Sequence[Sample]
    unavailable: Mapping[Metric, str] = field(default_factory=dict)

    def quads(self, metric: Metric) -> list[Sample]:
        return [sample for sample in self.samples if sample.metric == metric]

    def counting(self, metric: Metric, level: float) -> list[Sample]:
        """Return the quads of the longest blocks if they suffice for an interval, since shorter blocks are noisier;
        otherwise all quads."""
        quads = self.quads(metric)
        longest = max((sample.longer for sample in quads), default=1.0)
        of_longest = [sample for sample in quads if sample.longer == longest]
        return of_longest if len(of_longest) >= least_quads(level) else quads

    def intervals(self, metric: Metric, level: float, repeated_to: int = 0) -> tuple[Interval, Interval]:
        """Return the interval of the speedup (baseline over candidate) and of the noise (baseline over its twin)."""
        quads = self.counting(metric, level)
        quads = list(islice(cycle(quads), repeated_to)) if repeated_to else quads
        speedups = [sample.log_ratio("baseline", "candidate") for sample in quads]
        noise = [sample.log_ratio("baseline", "again") for sample in quads]
        return signed_rank_interval(speedups, level), signed_rank_interval(noise, level)

    def level(self, metric: Metric, policy: TimingPolicy) -> float:
        """Return the confidence level of this row's interval."""
        return level_of(metric, policy, self._has_waited(policy))

    def figures(self, metric: Metric, policy: TimingPolicy, quick: bool) -> tuple[Interval, Interval]:
        """Return the intervals of the speedup and of the noise that decide.

        A quick run has the range of its few quads instead of an interval.
        """
        level = self.level(metric, policy)
        ratio, noise = self.intervals(metric, level)
        if quick and (quads := self.counting(metric, level)):
            return _spread(ratio, quads, "candidate"), _spread(noise, quads, "again")
        return ratio, noise

    def result(self, metric: Metric, policy: TimingPolicy, quick: bool) -> MetricResult | Unavailable:
        """Return the figures of one metric."""
        if metric in self.unavailable:
            return Unavailable(unavailable=self.unavailable[metric])
        quads = self.counting(metric, self.level(metric, policy))
        ratio, noise = self.figures(metric, policy, quick)
        if math.isinf(ratio.high) or math.isinf(ratio.low):
            return Unavailable(unavailable=f"{TOO_FEW} ({len(quads)})")
        band = noise_band(noise, policy)
        return MetricResult(
            ratio=math.exp(ratio.estimate),
            interval=(math.exp(ratio.low), math.exp(ratio.high)),
            noise_band=math.expm1(band),
            baseline_us=median(sample.mean_us("baseline") for sample in quads),
            candidate_us=median(sample.mean_us("candidate") for sample in quads),
            quads=len(quads),
            by_events=bool(quads) and all(sample.by_events for sample in quads),
            outcome=outcome_of(ratio, band, policy),
        )

    def _has_waited(self, policy: TimingPolicy) -> bool:
        """Return whether `wall` was measured further after its first look."""
        return len(self.quads("wall")) > policy.first_look * policy.quads_of("wall")


def _spread(interval: Interval, quads: list[Sample], other: Role) -> Interval:
    """Return the range of a few quads."""
    values = [sample.log_ratio("baseline", other) for sample in quads]
    return Interval(interval.estimate, min(values), max(values))
