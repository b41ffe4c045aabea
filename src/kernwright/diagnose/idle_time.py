"""Idle time: the gaps of a GPU, and the host code that it waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kernwright.diagnose.trace.host_stack import HostRange, HostThread
from kernwright.diagnose.trace.trace import GpuEvent, Trace

SHORTEST_GAP_US = 1.0  # shorter gaps are the time that a GPU itself needs between two kernels
OUTLIER_RATIO = 10.0  # a call this many times longer than its operator's median does extra work
OUTLIER_US = 1000.0


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without work on a GPU, up to the event that ended it."""

    start_us: float
    end_us: float
    next: GpuEvent

    @property
    def duration_us(self) -> float:
        return self.end_us - self.start_us

    @property
    def waited_us(self) -> float:
        """The part of the gap that passed before the host launched the next event."""
        if self.next.launch is None:
            return 0.0
        launched = self.next.launch.start_us + self.next.launch.duration_us
        return max(0.0, min(launched, self.end_us) - self.start_us)


def gaps_of(events: Iterable[GpuEvent]) -> Iterator[Gap]:
    """Yield the gaps between events of one GPU, over all of its streams. `events` must be sorted by start."""
    end: float | None = None
    for event in events:
        if end is not None and event.start_us - end >= SHORTEST_GAP_US:
            yield Gap(end, event.start_us, event)
        end = event.end_us if end is None else max(end, event.end_us)


@dataclass(frozen=True)
class Waited:
    """Host code that the GPU waited for.

    Attributes:
        op: the operator or runtime call, or `Python outside of operators`.
        waited_us: idle time of the GPU that passed within it.
        calls: number of its calls that the GPU waited for.
        total: number of its calls in the trace.
        longest: the call that the GPU waited for longest.
        typical_us: the median duration of all calls of the operator in the trace.
        outliers: the calls that take much longer than the median.
    """

    op: str
    waited_us: float
    calls: int
    total: int = 0
    longest: HostRange | None = None
    typical_us: float = 0.0
    outliers: tuple[HostRange, ...] = ()


PYTHON = "Python outside of operators"


Spans = Sequence[tuple[float, float]]


def waits_of(trace: Trace, device: int = 0, gaps: Iterable[Gap] | None = None) -> list[Waited]:
    """Return the host code that a GPU waited for, longest first.

    Args:
        gaps: the gaps to explain, by start; by default all gaps of the device.
    """
    return waits_in(trace, {"": [(float("-inf"), float("inf"))]}, device, gaps)[""]


def waits_in(
    trace: Trace, spans: Mapping[str, Spans], device: int = 0, gaps: Iterable[Gap] | None = None
) -> dict[str, list[Waited]]:
    """Return the host code that a GPU waited for within each group of spans of time, longest first.

    Args:
        spans: by group, spans that do not overlap, by start.
        gaps: the gaps to explain, by start; by default all gaps of the device.
    """
    idle = _idle_by_thread(gaps_of(event for event in trace.gpu if event.device == device) if gaps is None else gaps)
    spent: dict[str, dict[str, dict[HostRange | None, float]]] = {group: {} for group in spans}
    for thread in trace.threads:
        if thread.key not in idle:
            continue
        parts = list(_innermost(thread))
        for group, within in spans.items():
            for entry, shared in _shared(parts, _overlap(idle[thread.key], within)):
                calls = spent[group].setdefault(entry.name if entry else PYTHON, {})
                calls[entry] = calls.get(entry, 0.0) + shared
    durations = _durations(trace.threads, {name for own in spent.values() for name in own})
    found = {}
    for group, own in spent.items():
        waits = [_waited(name, calls, durations.get(name, [])) for name, calls in own.items()]
        found[group] = sorted(waits, key=lambda waited: -waited.waited_us)
    return found


def _idle_by_thread(gaps: Iterable[Gap]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return the times in which the GPU waited for a launch, by the thread that launched."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for gap in gaps:
        if gap.waited_us > 0 and gap.next.launch is not None:
            found.setdefault(gap.next.launch.thread, []).append((gap.start_us, gap.start_us + gap.waited_us))
    return found


def _overlap(first: Spans, second: Spans) -> list[tuple[float, float]]:
    """Return the spans that two lists of spans share. Each list is sorted, and its spans do not overlap."""
    found, at = [], 0
    for start, end in first:
        while at < len(second) and second[at][1] <= start:
            at += 1
        number = at
        while number < len(second) and second[number][0] < end:
            found.append((max(start, second[number][0]), min(end, second[number][1])))
            number += 1
    return found


def _waited(name: str, calls: dict[HostRange | None, float], durations: list[float]) -> Waited:
    named = {entry: shared for entry, shared in calls.items() if entry is not None}
    typical = median(durations) if durations else 0.0
    least = max(OUTLIER_US, OUTLIER_RATIO * typical)
    return Waited(
        op=name,
        waited_us=sum(calls.values()),
        calls=len(calls),
        total=max(len(durations), len(named)),
        longest=max(named, key=lambda entry: named[entry]) if named else None,
        typical_us=typical,
        outliers=tuple(entry for entry in named if entry.duration_us >= least),
    )


def _durations(threads: Sequence[HostThread], names: Iterable[str]) -> dict[str, list[float]]:
    wanted = set(names)
    found: dict[str, list[float]] = {}
    for thread in threads:
        for kind in ("op", "runtime"):
            for entry in thread.spans(kind):
                if entry.name in wanted:
                    found.setdefault(entry.name, []).append(entry.duration_us)
    return found


def _innermost(thread: HostThread) -> Iterator[tuple[float, float, HostRange | None]]:
    """Yield the thread's time as consecutive parts, each with its innermost operator or runtime call."""
    entries = sorted([*thread.spans("op"), *thread.spans("runtime")], key=lambda e: (e.start_us, -e.duration_us))
    stack: list[HostRange] = []
    now = float("-inf")
    for entry in [*entries, None]:
        start = entry.start_us if entry else float("inf")
        while stack and stack[-1].start_us + stack[-1].duration_us <= start:
            closed = stack.pop()
            end = closed.start_us + closed.duration_us
            if end > now:
                yield now, end, closed
                now = end
        if start > now:
            yield now, start, stack[-1] if stack else None
            now = start
        if entry:
            stack.append(entry)


def _shared(
    parts: Iterable[tuple[float, float, HostRange | None]], windows: Sequence[tuple[float, float]]
) -> Iterator[tuple[HostRange | None, float]]:
    """Yield the time of each part within the windows. Both are sorted, and neither overlaps itself."""
    number = 0
    for start, end, entry in parts:
        while number < len(windows) and windows[number][1] <= start:
            number += 1
        at = number
        while at < len(windows) and windows[at][0] < end:
            shared = min(end, windows[at][1]) - max(start, windows[at][0])
            if shared > 0:
                yield entry, shared
            at += 1
