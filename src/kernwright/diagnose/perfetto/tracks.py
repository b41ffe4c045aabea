"""Tracks: steps, categories, hotspots, chains and gaps of a diagnosis as events of a Chrome trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kernwright.diagnose.hotspots.gpu_work import GpuWork
from kernwright.diagnose.hotspots.hotspot import Hotspot
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis
from kernwright.diagnose.idle_time import Gap, gaps_of
from kernwright.diagnose.kernel_name import short_name
from kernwright.diagnose.steps import steps_of
from kernwright.diagnose.trace.chrome import Event
from kernwright.diagnose.trace.trace import GpuEvent

PROCESS = "Kernwright"
FIRST = -1  # sort index: above the processes of the trace
ROUNDING_US = 0.01  # clocks are rounded: an event may begin this much before the end of the previous one


@dataclass(frozen=True)
class TrackMark:
    """One event of a track, before it has a place."""

    name: str
    start_us: float
    end_us: float
    args: dict[str, Any] = field(default_factory=dict)


def track_events(diagnosis: Diagnosis, process: int) -> Iterator[Event]:
    """Yield the events of all tracks, each track with its name first.

    Events of one track do not overlap. An event that would overlap gets a further track of the same name.

    Args:
        process: the number of a process that the trace does not use.
    """
    yield _named("process_name", process, 0, {"name": PROCESS})
    yield _named("process_sort_index", process, 0, {"sort_index": FIRST})
    thread = 0
    for name, marks in _tracks(diagnosis):
        for number, lane in enumerate(_lanes(marks)):
            thread += 1
            yield _named("thread_name", process, thread, {"name": name if not number else f"{name} ({number + 1})"})
            yield _named("thread_sort_index", process, thread, {"sort_index": thread})
            for mark in lane:
                yield _complete(mark, process, thread)


def _named(what: str, process: int, thread: int, args: dict[str, Any]) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "ts": 0, "args": args}


def _complete(mark: TrackMark, process: int, thread: int) -> Event:
    return {
        "ph": "X",
        "cat": "kernwright",
        "name": mark.name,
        "pid": process,
        "tid": thread,
        "ts": mark.start_us,
        "dur": mark.end_us - mark.start_us,
        "args": mark.args,
    }


def _lanes(marks: Iterable[TrackMark]) -> list[list[TrackMark]]:
    """Return the marks in lanes without overlap, each mark in the first lane that is free."""
    lanes: list[list[TrackMark]] = []
    ends: list[float] = []
    for mark in sorted(marks, key=lambda mark: (mark.start_us, -mark.end_us)):
        number = next((at for at, end in enumerate(ends) if mark.start_us >= end - ROUNDING_US), len(lanes))
        if number == len(lanes):
            lanes.append([])
            ends.append(mark.start_us)
        start = max(mark.start_us, ends[number])
        end = max(mark.end_us, start)
        lanes[number].append(TrackMark(mark.name, start, end, mark.args))
        ends[number] = end
    return lanes


def _tracks(diagnosis: Diagnosis) -> Iterator[tuple[str, list[TrackMark]]]:
    yield "steps", _steps(diagnosis)
    works = [(hotspot, work) for hotspot in diagnosis.hotspots for work in hotspot.works]
    streams = sorted({(event.device, event.stream) for _, work in works for event in work.events})
    events = [(hotspot, work, event) for hotspot, work in works for event in work.events]
    for device in sorted({device for device, _ in streams}):
        yield f"GPU {device}: gaps", [_gap(gap) for gap in gaps_of(_of_device(diagnosis, device))]
        yield f"GPU {device}: chains", [_chain(h, w) for h, w in works if w.kind != "kernel" and _device(w) == device]
        for stream in (stream for own, stream in streams if own == device):
            own = [each for each in events if (each[2].device, each[2].stream) == (device, stream)]
            yield f"GPU {device}, stream {stream}: categories", [_category(work, event) for _, work, event in own]
            yield f"GPU {device}, stream {stream}: hotspots", [_hotspot(hotspot, event) for hotspot, _, event in own]


def _of_device(diagnosis: Diagnosis, device: int) -> Iterator[GpuEvent]:
    return (event for event in diagnosis.trace.gpu if event.device == device)


def _device(work: GpuWork) -> int:
    return work.events[0].device


def _steps(diagnosis: Diagnosis) -> list[TrackMark]:
    steps = steps_of(diagnosis.trace)
    return [
        TrackMark(
            f"{step.name} (warm-up)" if step.is_warmup else step.name,
            step.start_us,
            step.end_us,
            {"GPU events": len(step.events), "GPU us": round(sum(event.duration_us for event in step.events), 3)},
        )
        for step in steps.steps
    ]


def _gap(gap: Gap) -> TrackMark:
    launch = gap.next.launch
    op = launch.stack.outermost_op if launch else None
    args = {
        "us": round(gap.duration_us, 3),
        "waited for the host us": round(gap.waited_us, 3),
        "ended by": short_name(gap.next.name),
        "launched by": op.name if op else None,
        "python": launch.stack.location if launch else None,
    }
    name = "waits for the host" if 2 * gap.waited_us > gap.duration_us else "idle"
    return TrackMark(name, gap.start_us, gap.end_us, args)


def _category(work: GpuWork, event: GpuEvent) -> TrackMark:
    return TrackMark(work.category, event.start_us, event.end_us, {"kernel": short_name(event.name)})


def _hotspot(hotspot: Hotspot, event: GpuEvent) -> TrackMark:
    path = hotspot.coverage.path
    args = {
        "rank": hotspot.rank,
        "status": hotspot.coverage.status,
        "share of the GPU's time": round(hotspot.share, 5),
        "fast path": path.name if path else None,
        "kernel": short_name(event.name),
    }
    return TrackMark(f"#{hotspot.rank} {hotspot.name}", event.start_us, event.end_us, args)


def _chain(hotspot: Hotspot, work: GpuWork) -> TrackMark:
    path, saving = hotspot.coverage.path, hotspot.saving
    args = {
        "operators": " ".join(call.op.name if call.op else call.word for call in work.calls),
        "kernels": len(work.events),
        "kernel us": round(work.us, 3),
        "status": hotspot.coverage.status,
        "reason": hotspot.coverage.reason,
        "fast path": path.name if path else None,
        "to turn it on": path.turn_on if path else None,
        "source": path.source if path else None,
        "all of them save us": None if saving is None else round(saving.us, 3),
    }
    end = max(event.end_us for event in work.events)
    return TrackMark(f"{hotspot.name}: {hotspot.coverage.status}", min(e.start_us for e in work.events), end, args)
