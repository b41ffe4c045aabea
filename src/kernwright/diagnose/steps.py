"""Steps: the parts of a run that repeat, such as denoising steps, and which of them are warm-up."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Literal

from kernwright.diagnose.trace.host_stack import HostThread
from kernwright.diagnose.trace.trace import Annotation, GpuEvent, Trace

StepSource = Literal["profiler", "annotations", "repetition"]

_PROFILER_STEP = re.compile(r"^ProfilerStep\s*#?\d*$")
# Ranges that torch and libraries name by themselves, and ranges of a model's parts: none of them is a step.
_NO_STEP = re.compile(
    r"^(## |Torch-Compiled Region|CompiledF|AOTDispatcher|TorchDynamo|nccl|c10d::|gloo:|Optimizer\.|enumerate\(|"
    r"DistributedDataParallel|FullyShardedDataParallel|FSDP::|autograd::|Pregraph|PyTorch Profiler|Iteration Start)|"
    r"layer|block|attn|attention|mlp|norm|embed",
    re.IGNORECASE,
)
_TRAILING_NUMBER = re.compile(r"[\s#_:.\-]*\d+\s*$")
_NUMBER = re.compile(r"\d+")
WARMUP_RATIO = 1.5  # a first step this many times longer than the others' median is warm-up
LEAST_OTHERS = 2  # steps of the same group that are needed to call the first one warm-up
MOST_UNEVEN = 1.15  # longest over shortest distance between repetitions, in kernels
LEAST_KERNELS = 2  # kernels in a step; a single kernel that repeats is not a step
LEAST_COVERED = 0.7  # share of the kernels that repetitions must cover
# Kernel names whose number of launches is a multiple of the number of steps, relative to the best number of steps.
LEAST_ALIKE = 0.98


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step, with the GPU's events that it launched.

    Attributes:
        name: the name of the range, such as `decode#1`, or `repetition 1`.
        group: the name without its number. Steps of one group do the same work.
        start_us: when the step began: the host entered it, and the GPU had finished the step before.
        end_us: when its last event on the GPU ended.
        is_warmup: whether it is the first of its group and takes much longer than the others.
    """

    name: str
    group: str
    start_us: float
    end_us: float
    events: tuple[GpuEvent, ...]
    is_warmup: bool = False

    @property
    def duration_us(self) -> float:
        return self.end_us - self.start_us


@dataclass(frozen=True)
class Steps:
    """The steps of a trace, by start.

    Attributes:
        source: the way in which the steps were found; None if there are no steps.
        outside: events that belong to no step.
    """

    source: StepSource | None
    steps: tuple[Step, ...] = ()
    outside: tuple[GpuEvent, ...] = ()

    @property
    def steady(self) -> tuple[Step, ...]:
        """The steps without warm-up."""
        return tuple(step for step in self.steps if not step.is_warmup)

    @property
    def groups(self) -> dict[str, list[Step]]:
        """The steps by group, in the order of their first steps."""
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            found.setdefault(step.group, []).append(step)
        return found


def steps_of(trace: Trace) -> Steps:
    """Return the steps of a trace.

    The program's own ranges come first: those of the profiler (`ProfilerStep#3`), then other named ranges. Without
    them, steps are found by the repetition of the kernels.
    """
    ranges, on_host = _named_ranges(trace)
    if not ranges:
        return _of_repetition(trace.gpu)
    source: StepSource = "profiler" if all(_PROFILER_STEP.match(each.name) for each in ranges) else "annotations"
    held, outside = _held_by(trace, ranges, on_host)
    named = [
        (each.name, group_of(each.name), each.start_us if on_host else None, events)
        for each, events in zip(ranges, held, strict=True)
        if events
    ]
    return Steps(source, _timed(named), tuple(outside))


def group_of(name: str) -> str:
    """Return the name of a range without its number: `decode#1` becomes `decode`."""
    return _NUMBER.sub("#", _TRAILING_NUMBER.sub("", name)).strip() or name


def _named_ranges(trace: Trace) -> tuple[list[Annotation], bool]:
    """Return the ranges of the host thread that launched most, and True; else those of the GPU, and False."""
    starts = sorted(event.launch.start_us for event in trace.gpu if event.launch is not None)
    best: list[Annotation] = []
    most = 0
    for thread in trace.threads:
        found = _step_ranges(_annotations(thread))
        held = sum(bisect_right(starts, each.end_us) - bisect_right(starts, each.start_us) for each in found)
        if held > most:
            best, most = found, held
    return (best, True) if best else (_step_ranges(trace.gpu_annotations), False)


def _annotations(thread: HostThread) -> list[Annotation]:
    return [Annotation(each.name, each.start_us, each.duration_us) for each in thread.spans("annotation")]


def _step_ranges(ranges: Iterable[Annotation]) -> list[Annotation]:
    """Return the ranges that are steps: the outermost ones if they repeat, else ranges within them that repeat."""
    named = sorted(ranges, key=lambda each: (each.start_us, -each.duration_us))
    named = [each for each in named if _PROFILER_STEP.match(each.name) or not _NO_STEP.search(each.name)]
    outer = _outermost(named)
    if _repeats(outer):
        return outer
    starts = [each.start_us for each in named]
    found: list[Annotation] = []
    for each in outer:
        first, last = bisect_left(starts, each.start_us), bisect_right(starts, each.end_us)
        parts = _step_ranges([inner for inner in named[first:last] if _lies_within(inner, each)])
        found += parts if _repeats(parts) else [each]
    return found


def _lies_within(inner: Annotation, outer: Annotation) -> bool:
    return inner is not outer and outer.start_us <= inner.start_us and inner.end_us <= outer.end_us


def _outermost(ranges: Sequence[Annotation]) -> list[Annotation]:
    found: list[Annotation] = []
    for each in ranges:
        if not found or each.start_us >= found[-1].end_us:
            found.append(each)
    return found


def _repeats(ranges: Sequence[Annotation]) -> bool:
    return any(count > 1 for count in Counter(group_of(each.name) for each in ranges).values())


def _held_by(trace: Trace, ranges: Sequence[Annotation], on_host: bool) -> tuple[list[list[GpuEvent]], list[GpuEvent]]:
    """Assign each event to the range that launched it; an event without a launch to the GPU's range around it."""
    on_gpu = _outermost([each for each in trace.gpu_annotations if each.name in {range_.name for range_ in ranges}])
    numbers = _numbers(ranges)
    gpu_numbers = [numbers.get(key) for key in _occurrences(on_gpu)]
    starts, gpu_starts = [each.start_us for each in ranges], [each.start_us for each in on_gpu]
    held: list[list[GpuEvent]] = [[] for _ in ranges]
    outside: list[GpuEvent] = []
    for event in trace.gpu:
        if event.launch is not None and on_host:
            number = _holding(ranges, starts, event.launch.start_us)
        else:
            place = _holding(on_gpu, gpu_starts, event.start_us)
            number = None if place is None else gpu_numbers[place]
        (outside if number is None else held[number]).append(event)
    return held, outside


def _numbers(ranges: Sequence[Annotation]) -> dict[tuple[str, int], int]:
    return {key: number for number, key in enumerate(_occurrences(ranges))}


def _occurrences(ranges: Sequence[Annotation]) -> list[tuple[str, int]]:
    """Return each range's name, and how many ranges of this name came before it."""
    seen: Counter[str] = Counter()
    found = []
    for each in ranges:
        found.append((each.name, seen[each.name]))
        seen[each.name] += 1
    return found


def _holding(ranges: Sequence[Annotation], starts: Sequence[float], time: float) -> int | None:
    """Return the position of the range that holds a time. The ranges do not overlap."""
    place = bisect_right(starts, time) - 1
    return place if place >= 0 and time <= ranges[place].end_us else None


def _timed(named: Sequence[tuple[str, str, float | None, list[GpuEvent]]]) -> tuple[Step, ...]:
    found: list[Step] = []
    ended = float("-inf")
    for name, group, entered, events in named:
        began = min(event.start_us for event in events)
        start = began if entered is None else min(entered, began)
        end = max(event.end_us for event in events)
        found.append(
            Step(name=name, group=group, start_us=min(max(start, ended), end), end_us=end, events=tuple(events))
        )
        ended = max(ended, end)
    return _with_warmup(found)


def _with_warmup(steps: Sequence[Step]) -> tuple[Step, ...]:
    by_group: dict[str, list[Step]] = {}
    for step in steps:
        by_group.setdefault(step.group, []).append(step)
    slow = {
        id(first)
        for first, *others in by_group.values()
        if len(others) >= LEAST_OTHERS
        and first.duration_us > WARMUP_RATIO * median(other.duration_us for other in others)
    }
    return tuple(replace(step, is_warmup=True) if id(step) in slow else step for step in steps)


def _of_repetition(events: Sequence[GpuEvent]) -> Steps:
    """Cut the events where the kernels of the busiest stream begin to repeat."""
    names = _names_of_busiest_stream(events)
    cuts = repetitions([name for _, name in names])
    if not cuts:
        return Steps(None, outside=tuple(events))
    times = [names[cut][0] for cut in cuts]
    held: list[list[GpuEvent]] = [[] for _ in cuts]
    outside: list[GpuEvent] = []
    for event in events:
        place = bisect_right(times, event.start_us) - 1
        (held[place] if place >= 0 else outside).append(event)
    named = [(f"repetition {n}", "repetition", None, each) for n, each in enumerate(held, start=1)]
    return Steps("repetition", _timed(named), tuple(outside))


def _names_of_busiest_stream(events: Sequence[GpuEvent]) -> list[tuple[float, str]]:
    busy: Counter[tuple[int, int]] = Counter()
    for event in events:
        busy[event.device, event.stream] += 1
    busiest = max(busy, key=lambda stream: busy[stream], default=None)
    return [(event.start_us, event.name) for event in events if (event.device, event.stream) == busiest]


def repetitions(names: Sequence[str]) -> list[int]:
    """Return the start of each repetition in a sequence; nothing if it does not repeat.

    Some kernels run once in each step, and the number of launches of every kernel is a multiple of the number of steps.
    So the result is the largest number of steps for which both are true and the kernels are evenly spaced.
    """
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    anchors: dict[int, list[int]] = {}
    for found in places.values():
        if len(found) > 1 and len(found) not in anchors and _is_even(found, len(names)):
            anchors[len(found)] = found
    alike = {count: sum(len(found) % count == 0 for found in places.values()) for count in anchors}
    enough = LEAST_ALIKE * max(alike.values(), default=0)
    best = max((count for count in anchors if alike[count] >= enough), default=None)
    return [] if best is None else _from_first_kernel(anchors[best], len(names))


def _distances(places: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(places)]


def _is_even(places: Sequence[int], total: int) -> bool:
    distances = _distances(places)
    if min(distances) < LEAST_KERNELS:
        return False
    covered = median(distances) * len(places)
    return max(distances) <= MOST_UNEVEN * min(distances) and LEAST_COVERED * total <= covered <= MOST_UNEVEN * total


def _from_first_kernel(places: Sequence[int], total: int) -> list[int]:
    """Move the cuts back so that the last repetition is as long as the others."""
    length = int(median(_distances(places)))
    missing = max(0, length - (total - places[-1]))
    shift = min(missing, places[0])
    return [place - shift for place in places]
