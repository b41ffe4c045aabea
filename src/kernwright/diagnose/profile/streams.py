"""Streams: work of a GPU that runs at the same time, and work that waits for other work."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Literal

from kernwright.diagnose.trace.trace import GpuEvent

Follower = Literal["waits", "runs along", "none"]
Span = tuple[float, float]
PROMPT_US = 10.0  # an event that starts this soon after another one ended was probably waiting for it


class Streams:
    """The events of all GPUs, for questions about the work next to one event.

    Args:
        events: the events, by start.
    """

    def __init__(self, events: Sequence[GpuEvent]) -> None:
        by_device: dict[int, list[GpuEvent]] = {}
        for event in events:
            by_device.setdefault(event.device, []).append(event)
        self._shared = {device: _Spans(_shared(found)) for device, found in by_device.items()}
        self._events = by_device
        self._starts = {device: [event.start_us for event in found] for device, found in by_device.items()}

    def hidden_us(self, event: GpuEvent) -> float:
        """Return the time during an event in which another stream of the same GPU worked."""
        return self._shared[event.device].within(event.start_us, event.end_us)

    def follower(self, event: GpuEvent) -> Follower:
        """Return the relation of the next work of another stream to an event.

        `waits`: it was launched before the event ended, and began right after that. `runs along`: it began during the
        event. `none`: neither, or there is no other stream.
        """
        starts, events = self._starts[event.device], self._events[event.device]
        first = bisect_left(starts, event.start_us)
        last = bisect_right(starts, event.end_us + PROMPT_US)
        others = [other for other in events[first:last] if other.stream != event.stream]
        if any(other.start_us < event.end_us for other in others):
            return "runs along"
        return "waits" if any(other.launch and other.launch.start_us < event.end_us for other in others) else "none"


class _Spans:
    """Spans of time that do not overlap."""

    def __init__(self, spans: Iterable[Span]) -> None:
        known = list(spans)
        self._starts = [start for start, _ in known]
        self._ends = [end for _, end in known]
        self._before = [0.0, *accumulate(end - start for start, end in known)]

    def within(self, start: float, end: float) -> float:
        """Return the total time of the spans between two times."""
        return max(0.0, self._until(end) - self._until(start))

    def _until(self, time: float) -> float:
        place = bisect_right(self._starts, time)
        total = self._before[place]
        return total - max(0.0, self._ends[place - 1] - time) if place else total


def _shared(events: Sequence[GpuEvent]) -> Iterator[Span]:
    """Yield the spans in which at least two streams of one GPU work."""
    changes = [(event.start_us, 1, event.stream) for event in events]
    changes += [(event.end_us, -1, event.stream) for event in events]
    running: dict[int, int] = {}
    began: float | None = None
    for time, change, stream in sorted(changes):
        running[stream] = running.get(stream, 0) + change
        if not running[stream]:
            del running[stream]
        if len(running) > 1 and began is None:
            began = time
        elif len(running) <= 1 and began is not None:
            if time > began:
                yield began, time
            began = None
