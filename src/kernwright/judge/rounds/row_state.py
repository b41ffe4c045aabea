"""RowState: the samples and findings of one pair on one row so far, and the verdict that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernwright.judge.contest.faults import WrongOutput
from kernwright.judge.device.device import Device
from kernwright.judge.numerics.correctness import CorrectnessReport
from kernwright.judge.process.faults import WorkerCheated, WorkerFailed
from kernwright.judge.record.row_outcome import row_outcome
from kernwright.judge.record.sample import Role, RowSamples, Sample
from kernwright.judge.record.statistics import Interval, least_quads
from kernwright.judge.record.verdict import (
    GOOD,
    Kernel,
    MetricResult,
    Outcome,
    RanImplementation,
    RowVerdict,
    Unavailable,
    baselines_own,
)
from kernwright.judge.record.wall_check import wall_says
from kernwright.judge.rounds.sizing import BlockSizes
from kernwright.judge.session.session import WrongBehaviour
from kernwright.tasks.policy import METRICS, Metric, TimingPolicy
from kernwright.tasks.workload import Workload

CALMER = 1.5  # a row starts over only if its blocks become at least this many times longer
HOPEFUL = 0.5  # smallest share of the expected interval width that luck may leave after all rounds


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
    awaits_wall: bool = False  # only `wall` is still open
    kernels: dict[str, list[Kernel]] = field(default_factory=dict)
    ran: RanImplementation | None = None
    process_calls: int = 0
    untimed: str | None = None  # why the row is only checked for correctness
    against_itself: bool = False  # True if both sides are the same contestant

    @property
    def pending(self) -> bool:
        return self.fault is None and not self.decided

    def condemn(self, cause: Exception) -> None:
        """Set the row's verdict: the candidate failed or broke a rule."""
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
        """Copy the findings of the same contender on this row from another pair."""
        self.report, self.ran = other.report, other.ran
        self.fault, self.decided = other.fault, other.decided
        self.reasons += other.reasons

    def fail(self, reason: str) -> None:
        """Mark the row as not judgeable, for a reason that is not the candidate's fault."""
        self.fault = "failed"
        self.reasons.append(reason)

    @property
    def timed(self) -> RowSamples:
        return RowSamples(self.samples, self.unavailable)

    def quads(self, metric: Metric) -> list[Sample]:
        return self.timed.quads(metric)

    def intervals(self, metric: Metric, level: float, repeated_to: int = 0) -> tuple[Interval, Interval]:
        """Return baseline over candidate, and baseline over its twin: the difference and the noise."""
        return self.timed.intervals(metric, level, repeated_to)

    def result(self, metric: Metric, policy: TimingPolicy, quick: bool) -> MetricResult | Unavailable:
        return self.timed.result(metric, policy, quick)

    def look(self, policy: TimingPolicy, rounds: int | None = None) -> None:
        """Take the sequential test's look: the row is decided, out of time, or gets one more round.

        `rounds` is the maximum number of rounds, if it is below the policy's.
        """
        most = rounds or policy.max_rounds
        result = self.result(policy.decides, policy, quick=False)
        decided = isinstance(result, MetricResult) and result.outcome != "inconclusive"
        self.awaits_wall = decided and self._wall_cannot_tell(result, policy)
        if decided and not self.awaits_wall:
            self.decided = True
        elif self.spent_s > policy.row_budget_s:
            self.decided = True
            self.reasons.append(f"undecided after the row's time budget of {policy.row_budget_s:.0f} s")
        elif not decided and self._is_hopeless(policy, most):
            self.decided = True
            self.reasons.append(f"too noisy on this machine to decide within {most} rounds")
        elif not decided and (calmer := self._calmer_sizes(policy, most)) is not None:
            self.sizes = calmer

    @property
    def longer(self) -> float:
        """Return the factor by which blocks were lengthened, the smallest of all sides."""
        return min((size.longer for size in self.sizes.values()), default=1.0)

    def _calmer_sizes(self, policy: TimingPolicy, rounds: int) -> dict[Role, BlockSizes] | None:
        """Return larger block sizes if, at the first look, longer blocks promise much less noise.

        The remaining rounds must suffice without the samples so far. Blocks of `wall` never change their size.
        """
        left = rounds * policy.quads_per_round - len(self.quads(policy.decides))
        is_first = all(sample.round < policy.first_look for sample in self.samples)
        if policy.decides == "wall" or not is_first or not self.sizes or left < least_quads(policy.level):
            return None
        sizes = {role: size.calmed() for role, size in self.sizes.items()}
        return sizes if min(size.longer for size in sizes.values()) >= CALMER else None

    def _is_hopeless(self, policy: TimingPolicy, rounds: int) -> bool:
        """Return whether the remaining rounds would most likely not decide the row. It then ends inconclusive."""
        quads, most = len(self.quads(policy.decides)), policy.quads_per_round * rounds
        if not policy.quads_per_round * policy.first_look < quads < most:
            return False  # the first look is too early: among so few quads one outlier dominates
        if self.longer > 1:
            return False  # the row has started over, and most samples are from before
        # Repeat the quads so far up to the possible number. The interval of few quads spans their whole range including
        # an outlier; the interval of many does not.
        ratio, noise = self.intervals(policy.decides, policy.level, most)
        reach = HOPEFUL * (ratio.high - ratio.low) / 2
        may_be_same = reach <= math.log1p(policy.same_margin)
        may_differ = abs(ratio.estimate) - reach > max(HOPEFUL * noise.max_distance, math.log1p(policy.band_floor))
        return not may_be_same and not may_differ

    def _wall_cannot_tell(self, deciding: MetricResult | Unavailable, policy: TimingPolicy) -> bool:
        """Return whether more samples of `wall` may show that a single call has the gain too."""
        wall = self.result("wall", policy, quick=False)
        if not isinstance(deciding, MetricResult) or not isinstance(wall, MetricResult) or policy.decides == "wall":
            return False
        return deciding.outcome in GOOD and wall_says(deciding, wall) == "cannot tell"

    def verdict(self, policy: TimingPolicy, device: Device, quick: bool) -> RowVerdict:
        metrics = {metric: self.result(metric, policy, quick) for metric in METRICS} if self.samples else {}
        least_us = self._least_us(policy, device) if self.samples else None
        outcome, reasons = self._outcome(metrics, policy, least_us)
        if self.ran and self.ran.fallback_note:  # last, because the first reason is read as the cause of the verdict
            reasons.append(self.ran.fallback_note)
        elif not self.against_itself and (own := baselines_own(self.kernels)):
            reasons.append(own)
        return RowVerdict(
            id=self.row.id,
            op=self.row.op,
            verdict=outcome,
            reasons=tuple(reasons),
            metrics=metrics,
            errors={name: figures.as_record() for name, figures in self.report.errors.items()},
            cases=self.report.cases,
            repeated_cases=self.report.repeated,
            deterministic=self.report.deterministic if self.report.cases else None,
            kernels=self.kernels,
            ran=self.ran,
            process_calls=self.process_calls,
            bytes_min=self.row.bytes_min,
            fastest_copy_us=self.copy_s * 1e6 if self.copy_s is not None else None,
            least_us=least_us,
        )

    def _calls_of_block(self, metric: Metric) -> int:
        """Return the number of calls in the candidate's block. Calls of `wall` are timed one by one."""
        if metric == "wall" or (own := self.sizes.get("candidate")) is None:
            return 1
        return own.stream_calls if metric == "stream" else own.slots

    def _why_untimed(self) -> str:
        return self.untimed if self.untimed is not None and self.decided else "not timed"

    def _outcome(
        self, metrics: dict[Metric, MetricResult | Unavailable], policy: TimingPolicy, least_us: float | None
    ) -> tuple[Outcome, list[str]]:
        if self.fault is not None:
            return self.fault, list(self.reasons)
        if policy.decides not in metrics:
            return "inconclusive", [*self.reasons, self._why_untimed()]
        outcome, reasons = row_outcome(self.timed, metrics, policy, least_us or 0.0)
        return outcome, [*self.reasons, *reasons]

    def _least_us(self, policy: TimingPolicy, device: Device) -> float:
        """Return the least time that the row's bytes can take on this device."""
        working_set = self.row.bytes_min * self._calls_of_block(policy.decides)
        return device.fastest_seconds(self.row.bytes_min, policy.threads, working_set) * 1e6
