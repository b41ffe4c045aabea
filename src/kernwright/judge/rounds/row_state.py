"""RowState: what a judgement has gathered of one pair on one row so far, and the verdict that it amounts to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import median

from kernwright.judge.contest.faults import WrongOutput
from kernwright.judge.contest.pair import Role
from kernwright.judge.device.device import Device
from kernwright.judge.numerics.correctness import CorrectnessReport
from kernwright.judge.process.faults import WorkerCheated, WorkerFailed
from kernwright.judge.record.decision import level_of, noise_band, outcome_of
from kernwright.judge.record.statistics import Interval, least_quads, signed_rank_interval
from kernwright.judge.record.verdict import (
    GOOD,
    UNTIMED,
    Kernel,
    MetricResult,
    Outcome,
    RanImplementation,
    RowVerdict,
    Unavailable,
)
from kernwright.judge.record.wall_check import less_than_its_kernels, shared_between_calls, wall_says
from kernwright.judge.rounds.output_release import paid_on_release
from kernwright.judge.rounds.quad import Sample
from kernwright.judge.rounds.sizing import BlockSizes
from kernwright.judge.session.session import WrongBehaviour
from kernwright.tasks.policy import METRICS, Metric, TimingPolicy
from kernwright.tasks.workload import Workload

CALMER = 1.5  # times as long at least, or starting over with longer blocks is not worth it
HOPEFUL = 0.5  # share of the width that all rounds are expected to leave; with luck it is as little as this


@dataclass
class RowState:
    """One row of one pair under judgement."""

    row: Workload
    report: CorrectnessReport = field(default_factory=CorrectnessReport)
    samples: list[Sample] = field(default_factory=list)
    sizes: dict[Role, BlockSizes] = field(default_factory=dict)
    copy_s: float | None = None
    spent_s: float = 0.0
    unavailable: dict[Metric, str] = field(default_factory=dict)
    fault: Outcome | None = None
    reasons: list[str] = field(default_factory=list)
    decided: bool = False
    awaits_wall: bool = False  # decided, were it not for `wall`, which cannot tell yet
    kernels: dict[str, list[Kernel]] = field(default_factory=dict)
    ran: RanImplementation | None = None

    @property
    def pending(self) -> bool:
        return self.fault is None and not self.decided

    def condemn(self, cause: Exception) -> None:
        """The candidate fell over or broke a rule: that is this row's verdict."""
        match cause:
            case WorkerCheated():
                self.fault = "tampered"
            case WrongBehaviour() | WrongOutput():
                self.fault = "incorrect"
            case WorkerFailed(kind="OutputProblem"):
                self.fault = "incorrect"
            case _:
                self.fault = "failed"
        self.reasons.append(str(cause))

    def take_findings(self, other: RowState) -> None:
        """The same contender was examined on this row, for another pair that it stands in."""
        self.report, self.ran = other.report, other.ran
        self.fault, self.decided = other.fault, other.decided
        self.reasons += other.reasons

    def fail(self, reason: str) -> None:
        """The row cannot be judged, through no fault of the candidate's."""
        self.fault = "failed"
        self.reasons.append(reason)

    def quads(self, metric: Metric) -> list[Sample]:
        return [sample for sample in self.samples if sample.metric == metric]

    def counting(self, metric: Metric, level: float) -> list[Sample]:
        """Those of the longest blocks, once they are enough for an interval: those of shorter ones are noisier."""
        quads = self.quads(metric)
        longest = max((sample.longer for sample in quads), default=1.0)
        own = [sample for sample in quads if sample.longer == longest]
        return own if len(own) >= least_quads(level) else quads

    def intervals(self, metric: Metric, level: float, repeated_to: int = 0) -> tuple[Interval, Interval]:
        """Baseline over candidate, and baseline over its twin: the difference and the noise."""
        quads = self.counting(metric, level)
        quads = list(islice(cycle(quads), repeated_to)) if repeated_to else quads
        speedups = [sample.log_ratio("baseline", "candidate") for sample in quads]
        noise = [sample.log_ratio("baseline", "again") for sample in quads]
        return signed_rank_interval(speedups, level), signed_rank_interval(noise, level)

    def result(self, metric: Metric, policy: TimingPolicy, quick: bool) -> MetricResult | Unavailable:
        if metric in self.unavailable:
            return Unavailable(unavailable=self.unavailable[metric])
        level = level_of(metric, policy, self._has_waited(policy))
        quads = self.counting(metric, level)
        ratio, noise = self.intervals(metric, level)
        if quick and quads:
            ratio, noise = _spread(ratio, quads, "candidate"), _spread(noise, quads, "again")
        if math.isinf(ratio.high) or math.isinf(ratio.low):
            return Unavailable(unavailable=f"too few quads for an interval ({len(quads)})")
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

    def look(self, policy: TimingPolicy, rounds: int | None = None) -> None:
        """The sequential test's look at this row: decided, out of time, or one more round. `rounds`: that it is given
        at most, where fewer than the policy has."""
        most = rounds or policy.max_rounds
        result = self.result(policy.decides, policy, quick=False)
        decided = isinstance(result, MetricResult) and result.outcome != "inconclusive"
        self.awaits_wall = decided and self._wall_cannot_tell(result, policy)
        if decided and not self.awaits_wall:
            self.decided = True
        elif self.spent_s > policy.row_budget_s:
            self.decided = True
            self.reasons.append(f"undecided when its {policy.row_budget_s:.0f} s were spent")
        elif not decided and self._is_hopeless(policy, most):
            self.decided = True
            self.reasons.append(f"too noisy here for {most} rounds to decide")
        elif not decided and (calmer := self._calmer_sizes(policy, most)) is not None:
            self.sizes = calmer

    def _has_waited(self, policy: TimingPolicy) -> bool:
        """Whether `wall` was looked at and then measured further."""
        return len(self.quads("wall")) > policy.first_look * policy.quads_of("wall")

    @property
    def longer(self) -> float:
        """Times as long as at first, its blocks are: the side's that has gained the least."""
        return min((size.longer for size in self.sizes.values()), default=1.0)

    def _calmer_sizes(self, policy: TimingPolicy, rounds: int) -> dict[Role, BlockSizes] | None:
        """At the first look, where longer blocks are much calmer and the rounds to come can do without what was
        measured so far. Of `wall` a block has as many calls as ever."""
        left = rounds * policy.quads_per_round - len(self.quads(policy.decides))
        is_first = all(sample.round < policy.first_look for sample in self.samples)
        if policy.decides == "wall" or not is_first or not self.sizes or left < least_quads(policy.level):
            return None
        sizes = {role: size.calmed() for role, size in self.sizes.items()}
        return sizes if min(size.longer for size in sizes.values()) >= CALMER else None

    def _is_hopeless(self, policy: TimingPolicy, rounds: int) -> bool:
        """Whether all rounds that are left would most likely not decide it: they cost time and show nothing. No row is
        called anything for it but inconclusive."""
        quads, most = len(self.quads(policy.decides)), policy.quads_per_round * rounds
        if not policy.quads_per_round * policy.first_look < quads < most:
            return False  # the first look is too early: one stray quad of so few tells nothing of the rest
        if self.longer > 1:
            return False  # it has started over, and what is known of it is mostly from before
        # The quads so far, again and again up to as many as there can be: of few the interval is the whole range, one
        # stray quad included, which of many it is not.
        ratio, noise = self.intervals(policy.decides, policy.level, most)
        reach = HOPEFUL * (ratio.high - ratio.low) / 2
        may_be_same = reach <= math.log1p(policy.same_margin)
        may_differ = abs(ratio.estimate) - reach > max(HOPEFUL * noise.reach, math.log1p(policy.band_floor))
        return not may_be_same and not may_differ

    def _wall_cannot_tell(self, deciding: MetricResult | Unavailable, policy: TimingPolicy) -> bool:
        """Whether more of `wall` may show what it does not show yet: that a call by itself has the gain too."""
        wall = self.result("wall", policy, quick=False)
        if not isinstance(deciding, MetricResult) or not isinstance(wall, MetricResult) or policy.decides == "wall":
            return False
        return deciding.outcome in GOOD and wall_says(deciding, wall) == "cannot tell"

    def verdict(self, policy: TimingPolicy, device: Device, quick: bool, samples_blob: str | None) -> RowVerdict:
        metrics = {metric: self.result(metric, policy, quick) for metric in METRICS} if self.samples else {}
        outcome, reasons = self._outcome(metrics, policy, device)
        if self.ran and self.ran.stands_in:  # last: readers take the first reason for the cause of the verdict
            reasons.append(self.ran.stands_in)
        return RowVerdict(
            id=self.row.id,
            op=self.row.op,
            verdict=outcome,
            reasons=tuple(reasons),
            metrics=metrics,
            errors={name: figures.as_record() for name, figures in self.report.errors.items()},
            cases=self.report.cases,
            deterministic=self.report.deterministic if self.report.cases else None,
            kernels=self.kernels,
            ran=self.ran,
            bytes_min=self.row.bytes_min,
            fastest_copy_us=self.copy_s * 1e6 if self.copy_s is not None else None,
            samples=samples_blob,
        )

    def _calls_of_block(self, metric: Metric) -> int:
        """Of the candidate's."""
        if (own := self.sizes.get("candidate")) is None:
            return 1
        return own.stream_calls if metric == "stream" else own.slots

    def _why_untimed(self) -> str:
        return UNTIMED if self.row.set == "grid" and self.decided else "not timed"

    def _outcome(
        self, metrics: dict[Metric, MetricResult | Unavailable], policy: TimingPolicy, device: Device
    ) -> tuple[Outcome, list[str]]:
        reasons = list(self.reasons)
        if self.fault is not None:
            return self.fault, reasons
        deciding = metrics.get(policy.decides)
        if not isinstance(deciding, MetricResult):
            return "inconclusive", [*reasons, deciding.unavailable if deciding else self._why_untimed()]
        working_set = self.row.bytes_min * self._calls_of_block(policy.decides)
        fastest = device.fastest_seconds(self.row.bytes_min, policy.threads, working_set) * 1e6
        if deciding.candidate_us < fastest:
            return "tampered", [
                *reasons,
                f"{deciding.candidate_us:.3g} us is impossible: its bytes take {fastest:.3g} us at the very least",
            ]
        outcome = deciding.outcome
        if busy := sum(sample.busy for sample in self.counting(policy.decides, policy.level)):
            reasons.append(f"{busy} of {deciding.quads} quads were taken on a busy machine")
        if outcome == "inconclusive":
            reasons.append("the interval neither clears the noise band nor lies inside the margin")
        if outcome in ("faster", "slower") and _too_close(deciding, policy):
            return "inconclusive", [*reasons, f"a difference under {policy.least_difference_us} us is the clock's own"]
        if outcome in GOOD and (hidden := paid_on_release(self.counting(policy.decides, policy.level), deciding)):
            return "inconclusive", [*reasons, hidden]
        wall = metrics.get("wall")
        if outcome in GOOD and isinstance(wall, Unavailable) and self.quads("wall"):
            return "inconclusive", [*reasons, f"no wall time to hold against it: {wall.unavailable}"]
        if outcome in GOOD and isinstance(wall, MetricResult):
            if shared := shared_between_calls(deciding, wall):
                return "inconclusive", [*reasons, shared]
            if less_than_its_kernels(wall, metrics.get("device")):
                return "inconclusive", [*reasons, "a call by itself seems to take less time than its kernels do"]
            if wall.outcome == "slower":
                return "inconclusive", [*reasons, f"{outcome} in a run of calls, slower when called by itself"]
        return outcome, reasons


def _too_close(result: MetricResult, policy: TimingPolicy) -> bool:
    """On rows of a few microseconds a share is nothing: the clock itself moves by tenths of one."""
    return abs(result.baseline_us - result.candidate_us) < policy.least_difference_us


def _spread(interval: Interval, quads: list[Sample], other: Role) -> Interval:
    """The range of a few quads: what a quick run shows instead of an interval."""
    values = [sample.log_ratio("baseline", other) for sample in quads]
    return Interval(interval.estimate, min(values), max(values))
