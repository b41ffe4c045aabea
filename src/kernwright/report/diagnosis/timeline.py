"""Timeline: one step of a trace, with the work of each stream at each moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from kernwright.diagnose.category import Category
from kernwright.diagnose.idle_time import SHORTEST_GAP_US, Gap, gaps_of
from kernwright.diagnose.kernel_name import short_name
from kernwright.diagnose.steps import Step, Steps
from kernwright.diagnose.trace.trace import GpuEvent

MOST_LANES = 6
MOST_GROUPS = 4
LEAST_COLUMNS = 4  # an event of at least so many columns is drawn by itself
LEAST_FILLED = 0.5  # share of a column that work must fill to be drawn


@dataclass(frozen=True, kw_only=True)
class Box:
    """Work of one category, between two times."""

    start_us: float
    end_us: float
    category: Category
    about: str


@dataclass(frozen=True)
class Lane:
    """One stream of one GPU."""

    device: int
    stream: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One step.

    Attributes:
        count: number of steps of its group in the trace, without warm-up.
        gaps: times in which the step's busiest GPU was idle.
    """

    name: str
    count: int
    start_us: float
    end_us: float
    lanes: tuple[Lane, ...]
    gaps: tuple[Gap, ...]

    @property
    def duration_us(self) -> float:
        return self.end_us - self.start_us


def typical_steps(steps: Steps, events: Sequence[GpuEvent]) -> list[tuple[Step, int]]:
    """Return the step of median time of each group, with the number of its steps; the whole run if it has no steps."""
    groups = [[step for step in own if not step.is_warmup] for own in steps.groups.values()]
    groups.sort(key=lambda own: -sum(step.duration_us for step in own))
    if not groups:
        whole = Step(
            name="whole run",
            group="",
            start_us=events[0].start_us,
            end_us=max(event.end_us for event in events),
            events=tuple(events),
        )
        return [(whole, 1)]
    chosen = [(_median(own), len(own)) for own in groups[:MOST_GROUPS] if own]
    return sorted(chosen, key=lambda pair: pair[0].start_us)


def _median(steps: Sequence[Step]) -> Step:
    return sorted(steps, key=lambda step: step.duration_us)[(len(steps) - 1) // 2]


def timeline_of(step: Step, count: int, categories: Mapping[int, Category], columns: int) -> Timeline:
    """Return the timeline of a step.

    Args:
        count: number of steps of its group.
        categories: the category of each event by its id.
        columns: number of moments that can be distinguished.
    """
    streams: dict[tuple[int, int], list[GpuEvent]] = {}
    for event in sorted(step.events, key=lambda event: event.start_us):
        streams.setdefault((event.device, event.stream), []).append(event)
    busiest = sorted(streams, key=lambda key: -sum(event.duration_us for event in streams[key]))
    width = max(step.duration_us, 1e-3) / columns
    lanes = [Lane(*key, tuple(_boxes(streams[key], step.start_us, width, categories))) for key in busiest[:MOST_LANES]]
    return Timeline(
        name=step.name,
        count=count,
        start_us=step.start_us,
        end_us=step.end_us,
        lanes=tuple(sorted(lanes, key=lambda lane: (lane.device, lane.stream))),
        gaps=tuple(_gaps(step, busiest[0][0] if busiest else 0)),
    )


def _gaps(step: Step, device: int) -> Iterator[Gap]:
    events = sorted((event for event in step.events if event.device == device), key=lambda event: event.start_us)
    if events and events[0].start_us - step.start_us >= SHORTEST_GAP_US:
        yield Gap(step.start_us, events[0].start_us, events[0])
    yield from gaps_of(events)


def _boxes(events: Sequence[GpuEvent], start: float, width: float, categories: Mapping[int, Category]) -> Iterator[Box]:
    """Yield wide events by themselves, and narrow ones by the category that fills most of each column."""
    columns: dict[int, dict[Category, float]] = {}
    for event in events:
        category = categories.get(id(event), "other")
        if event.duration_us >= LEAST_COLUMNS * width:
            about = f"{short_name(event.name)}, {category}: {event.duration_us / 1e3:.3f} ms"
            yield Box(start_us=event.start_us, end_us=event.end_us, category=category, about=about)
            continue
        column = int((event.start_us - start) / width)
        known = columns.setdefault(column, {})
        known[category] = known.get(category, 0.0) + event.duration_us
    filled = [
        (column, max(known, key=lambda category: known[category]))
        for column, known in sorted(columns.items())
        if sum(known.values()) >= LEAST_FILLED * width
    ]
    # Consecutive columns of one category have the same difference between number and position.
    for (category, _), found in groupby(enumerate(filled), key=lambda pair: (pair[1][1], pair[1][0] - pair[0])):
        numbers = [column for _, (column, _) in found]
        first, end = start + numbers[0] * width, start + (numbers[-1] + 1) * width
        about = f"{category}: small kernels within {(end - first) / 1e3:.3f} ms"
        yield Box(start_us=first, end_us=end, category=category, about=about)
