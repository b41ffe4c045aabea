"""Diagnosis of a trace: the hotspots, steps and idle causes of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernwright.diagnose.hotspots.hotspot import Hotspot, Status
from kernwright.diagnose.hotspots.idle_cause import IdleCause
from kernwright.diagnose.trace.trace import Trace

VISIBLE = 0.001  # share of the time from which work outside of the steps is named


def counted(steps: int) -> str:
    return f"{steps} step{'' if steps == 1 else 's'}"


@dataclass(frozen=True, kw_only=True)
class StepGroupTime:
    """All steps of one name.

    Attributes:
        name: the name that the program gave them, without their numbers; empty for a trace without named steps.
        count: number of steps.
        span_us: their time from first to last, host and GPU.
        gpu_us: time of the GPU's events; more than the busy time if streams overlap.
        busy_us: time in which the GPU worked.
    """

    name: str
    count: int
    span_us: float
    gpu_us: float
    busy_us: float

    @property
    def idle_us(self) -> float:
        return max(0.0, self.span_us - self.busy_us)

    @property
    def idle_share(self) -> float:
        return self.idle_us / self.span_us if self.span_us else 0.0


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The diagnosis of a trace.

    Attributes:
        gpu_us: the time of all events of all GPUs, without warm-up. Shares refer to it.
        hotspots: all hotspots, by time.
        steps: the kinds of steps, in the order of their first start.
        idle: causes of idle time, by kind of step, longest first.
        device: name of the GPU.
        copy_bandwidth: bytes per second of a copy on this GPU, read and written; None if it is not known.
        notes: limits of the diagnosis, such as a trace without shapes.
    """

    trace: Trace
    gpu_us: float
    hotspots: Sequence[Hotspot]
    steps: Sequence[StepGroupTime]
    idle: Sequence[IdleCause]
    device: str | None
    copy_bandwidth: float | None
    notes: Sequence[str] = field(default=())

    def with_status(self, *statuses: Status) -> list[Hotspot]:
        return [hotspot for hotspot in self.hotspots if hotspot.coverage.status in statuses]

    @property
    def extent(self) -> str:
        """The steps that `gpu_us` adds up, such as ` in 2 steps`; empty for a trace without named steps."""
        named = [step for step in self.steps if step.name]
        if not named:
            return ""
        count = sum(step.count for step in named)
        outside = self.gpu_us - sum(step.gpu_us for step in named)
        also = " and outside of them" if outside > VISIBLE * self.gpu_us else ""
        return f" in {counted(count)}{also}"

    @property
    def status_shares(self) -> dict[Status, float]:
        """The statuses that occur, each with its share of the time, largest first."""
        found: dict[Status, float] = {}
        for hotspot in self.hotspots:
            status = hotspot.coverage.status
            found[status] = found.get(status, 0.0) + hotspot.share
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def saving_us(self) -> tuple[float, float, float]:
        """The predicted saving of all hotspots that a fast path covers: expected, lowest, highest."""
        savings = [h.saving for h in self.with_status("covered, off", "partly") if h.saving is not None]
        return sum(s.us for s in savings), sum(s.low_us for s in savings), sum(s.high_us for s in savings)
