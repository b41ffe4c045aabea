"""Profile: the tables of a recorded run, from the work on its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.category import Category
from kernwright.diagnose.hotspots.ranking import diagnose
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis
from kernwright.diagnose.idle_time import SHORTEST_GAP_US, Waited, waits_of
from kernwright.diagnose.profile.category_time import CategoryTime, categories_of, category_times
from kernwright.diagnose.profile.fusion import Fusion, fusions_of
from kernwright.diagnose.profile.gpu_time import GpuTime, busy_us, chosen_gaps, gpu_time
from kernwright.diagnose.profile.host_sites import host_sites, is_graph_launch
from kernwright.diagnose.profile.kernel_row import Found, KernelRow, kernel_rows
from kernwright.diagnose.profile.overlap import Overlap, overlaps_of
from kernwright.diagnose.steps import Step, Steps, StepSource, steps_of
from kernwright.diagnose.trace.trace import GpuEvent, Trace


class NoSuchStep(KernwrightError):
    """A trace has no step of the name that was asked for."""


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """All steps of one group without warm-up.

    Attributes:
        us: median time of a step, from its begin on host and GPU to the end of its last event.
        gpu_us: median time of a step's events.
        idle_share: part of the steps' time without work on the GPU.
    """

    group: str
    count: int
    warmup: int
    us: float
    gpu_us: float
    idle_share: float
    launches: int


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The tables of a recorded run.

    Attributes:
        us: the time of all events that the tables cover.
        step_source: the way in which steps were found; None if there are no steps.
        waits: the host code that the busiest GPU waited for, longest first.
        fusions: operators that could be fused; those of the mapping trace if there is one.
        notes: limits of the profile.
        found: the events that the tables cover, with category and site.
    """

    trace: Trace
    us: float
    devices: tuple[GpuTime, ...]
    kernels: tuple[KernelRow, ...]
    categories: tuple[CategoryTime, ...]
    waits: tuple[Waited, ...]
    overlaps: tuple[Overlap, ...]
    fusions: tuple[Fusion, ...]
    steps: tuple[StepRow, ...]
    step_source: StepSource | None
    notes: tuple[str, ...]
    found: tuple[Found, ...]


def profile_of(trace: Trace, mapping: Trace | None = None, group: str | None = None) -> Profile:
    """Return the profile of a trace.

    Args:
        mapping: a trace of the same program without CUDA graphs; it tells which code launches each kernel.
        group: the steps that the tables cover, such as `decode`. By default everything but warm-up.

    Raises:
        NoSuchStep: if the trace has no such step.
    """
    steps = steps_of(trace)
    events = _covered(trace, steps, group)
    chosen = {id(event) for event in events}
    diagnosis = diagnose(trace, steps=steps)
    mapped = diagnose(mapping) if mapping else None
    found = _found(diagnosis, events, mapped)
    devices = sorted({event.device for event in events})
    by_device = {device: [event for event in trace.gpu if event.device == device] for device in devices}
    times = [gpu_time(device, by_device[device], chosen) for device in devices]
    busiest = max(times, key=lambda time: time.busy_us).device
    gaps = [gap for gap in chosen_gaps(by_device[busiest], chosen) if gap.duration_us >= SHORTEST_GAP_US]
    return Profile(
        trace=trace,
        us=sum(event.duration_us for event in events),
        devices=tuple(times),
        kernels=tuple(kernel_rows(found)),
        categories=tuple(category_times(found)),
        waits=tuple(waits_of(trace, busiest, gaps)),
        overlaps=tuple(overlaps_of(found, trace.multiprocessors)),
        fusions=tuple(fusions_of(mapped) if mapped else fusions_of(diagnosis, chosen)),
        steps=tuple(_step_row(name, held) for name, held in steps.groups.items()),
        step_source=steps.source,
        notes=tuple(_notes(trace, found, steps, group)),
        found=tuple(found),
    )


def _covered(trace: Trace, steps: Steps, group: str | None) -> list[GpuEvent]:
    if group is None:
        warmup = {id(event) for step in steps.steps if step.is_warmup for event in step.events}
        return [event for event in trace.gpu if id(event) not in warmup]
    kept = [step for step in steps.steady if group in (step.group, step.name)]
    if not kept:
        names = ", ".join(steps.groups) or "none"
        raise NoSuchStep(
            f"{trace.path} has no step {group!r}; it has {names}", "choose one of them, or leave --step out"
        )
    return sorted((event for step in kept for event in step.events), key=lambda event: event.start_us)


def _found(diagnosis: Diagnosis, events: Sequence[GpuEvent], mapped: Diagnosis | None) -> list[Found]:
    categories = categories_of(diagnosis)
    sites = host_sites(events, mapped.trace.gpu if mapped else ())
    named = _categories_by_kernel(mapped) if mapped else {}
    found = []
    for event, site in zip(events, sites, strict=True):
        category = categories[id(event)]
        if site.is_mapped:
            category = named.get((event.name, event.grid), category)
        found.append((event, category, site))
    return found


def _categories_by_kernel(mapped: Diagnosis) -> dict[tuple[str, tuple[int, ...]], Category]:
    """Return the category with most time of each kernel and grid."""
    categories = categories_of(mapped)
    times: dict[tuple[str, tuple[int, ...]], dict[Category, float]] = {}
    for event in mapped.trace.gpu:
        category = categories.get(id(event))
        if category is not None:
            known = times.setdefault((event.name, event.grid), {})
            known[category] = known.get(category, 0.0) + event.duration_us
    return {key: max(known, key=lambda category: known[category]) for key, known in times.items()}


def _step_row(group: str, steps: Sequence[Step]) -> StepRow:
    steady = [step for step in steps if not step.is_warmup]
    spans = sum(step.duration_us for step in steady)
    busy = sum(busy_us(step.events) for step in steady)
    return StepRow(
        group=group,
        count=len(steady),
        warmup=len(steps) - len(steady),
        us=_median([step.duration_us for step in steady]),
        gpu_us=_median([sum(event.duration_us for event in step.events) for step in steady]),
        idle_share=max(0.0, 1 - busy / spans) if spans else 0.0,
        launches=round(_median([len(step.events) for step in steady])),
    )


def _median(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


def _notes(trace: Trace, found: Sequence[Found], steps: Steps, group: str | None) -> Iterator[str]:
    if steps.source is None:
        yield "no steps: the trace names none, and its kernels do not repeat evenly"
    if group is None and (warmup := [step.name for step in steps.steps if step.is_warmup]):
        yield f"warm-up is left out of the tables: {', '.join(warmup)}"
    events = [event for event, _, _ in found]
    graphs = sum(is_graph_launch(event.launch) for event in events if event.launch)
    if graphs and not any(site.is_mapped for _, _, site in found):
        yield (
            f"{graphs} of {len(events)} events come from CUDA graphs, which have no Python location: "
            "record a second trace without graphs and give it with --mapping"
        )
    without = sum(event.launch is None for event in events)
    if without:
        yield f"{without} of {len(events)} events have no launch in the trace: why the GPU waited for them is not known"
    if whole := trace.header.get("wholeGraphs"):
        yield f"{whole} launches of CUDA graphs were recorded as a whole: record with --cuda-graph-trace=node"
    if not graphs and all(site.location is None for _, _, site in found):
        yield "no Python locations: record with with_stack=True"
