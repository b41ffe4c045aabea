"""GpuTime: the time of one GPU in kernels, copies and gaps, with the causes of the gaps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kernwright.diagnose.idle_time import SHORTEST_GAP_US, Gap
from kernwright.diagnose.trace.trace import GpuEvent


@dataclass(frozen=True, kw_only=True)
class GpuTime:
    """The time of one GPU.

    Attributes:
        kernel_us, memcpy_us, memset_us: sums of durations. They exceed the busy time if streams overlap.
        busy_us: time in which at least one event ran.
        gap_us: time without any event, between events.
        waited_us: the part of the gaps that passed before the host launched the next event.
        own_us: the part of the gaps that is too short for a launch: the GPU's own time between kernels.
    """

    device: int
    kernel_us: float
    memcpy_us: float
    memset_us: float
    busy_us: float
    gap_us: float
    waited_us: float
    own_us: float

    @property
    def span_us(self) -> float:
        return self.busy_us + self.gap_us

    @property
    def idle_share(self) -> float:
        return self.gap_us / self.span_us if self.span_us else 0.0

    @property
    def host_bound_share(self) -> float:
        """The share of the time in which the GPU was idle because the host had not launched its next work."""
        return self.waited_us / self.span_us if self.span_us else 0.0


def chosen_gaps(events: Sequence[GpuEvent], chosen: Collection[int]) -> Iterator[Gap]:
    """Yield the gaps of one GPU that end with a chosen event, however short they are.

    Args:
        events: all events of the GPU, by start, also those that are not chosen.
        chosen: ids of the chosen events.
    """
    end: float | None = None
    for event in events:
        if end is not None and event.start_us > end and id(event) in chosen:
            yield Gap(end, event.start_us, event)
        end = event.end_us if end is None else max(end, event.end_us)


def busy_us(events: Iterable[GpuEvent]) -> float:
    """Return the time in which at least one event ran. The events must be sorted by start."""
    total, end = 0.0, float("-inf")
    for event in events:
        total += max(0.0, event.end_us - max(end, event.start_us))
        end = max(end, event.end_us)
    return total


def gpu_time(device: int, events: Sequence[GpuEvent], chosen: Collection[int]) -> GpuTime:
    """Return the time of a GPU in the chosen events and the gaps before them."""
    kept = [event for event in events if id(event) in chosen]
    sums = {"kernel": 0.0, "memcpy": 0.0, "memset": 0.0}
    for event in kept:
        sums[event.kind] += event.duration_us
    gaps = list(chosen_gaps(events, chosen))
    long = [gap for gap in gaps if gap.duration_us >= SHORTEST_GAP_US]
    total = sum(gap.duration_us for gap in gaps)
    return GpuTime(
        device=device,
        kernel_us=sums["kernel"],
        memcpy_us=sums["memcpy"],
        memset_us=sums["memset"],
        busy_us=busy_us(kept),
        gap_us=total,
        waited_us=sum(gap.waited_us for gap in long),
        own_us=total - sum(gap.duration_us for gap in long),
    )
