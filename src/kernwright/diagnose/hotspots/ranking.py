"""Ranking: the hotspots of a trace with their coverage, its steps, and the causes of idle time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from kernwright.diagnose.catalogue.catalogue import Catalogue, shipped_catalogue
from kernwright.diagnose.category import is_inductor
from kernwright.diagnose.chain import chain_patterns
from kernwright.diagnose.hotspots.coverage import TraceGpu, coverage_of, is_amd
from kernwright.diagnose.hotspots.gpu_work import GpuWork, patterns_in_order, works_of
from kernwright.diagnose.hotspots.hotspot import Hotspot, KernelTime
from kernwright.diagnose.hotspots.saving import copy_share_of, saving_of, traffic_of_work
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis, StepGroupTime
from kernwright.diagnose.hotspots.trace_idle_causes import idle_causes
from kernwright.diagnose.roofline.gpu_model import gpu_named
from kernwright.diagnose.steps import Step, Steps, steps_of
from kernwright.diagnose.trace.trace import GpuEvent, Trace

LARGE_BYTES = 256e6  # a call that moves this much is not served by the cache
NO_SHAPES = (
    "the trace has no shapes, so savings are estimates from the kernels' times: record with record_shapes=True for "
    "bytes, and for draft tasks"
)
NO_LAUNCHES = (
    "the trace does not tell which operators launched the kernels (CUDA graphs, or no CPU activity recorded): "
    "operators and chains are inferred from the kernels' names, and savings are estimates; a run without graphs and "
    "with record_shapes=True tells more"
)


def diagnose(trace: Trace, catalogue: Catalogue | None = None, steps: Steps | None = None) -> Diagnosis:
    """Return the diagnosis of a trace. Steps that are warm-up are left out.

    Args:
        catalogue: the known fast paths; by default those that ship.
        steps: the steps, if the caller has found them already.
    """
    catalogue = catalogue or shipped_catalogue()
    steps = steps or steps_of(trace)
    patterns = patterns_in_order(chain_patterns(), catalogue.patterns)
    warmup = {id(event) for step in steps.steps if step.is_warmup for event in step.events}
    found = works_of(trace, patterns, lambda name: is_inductor(name) or catalogue.running(name) is not None)
    works = [work for work in found if id(work.events[0]) not in warmup]
    bandwidth, source = _copy_bandwidth(trace, works)
    gpu = TraceGpu(trace.device_name, _capability(trace))
    step_of = {id(event): step.group for step in steps.steps for event in step.events}
    total = sum(work.us for work in works)
    described = [_hotspot(own, catalogue, gpu, bandwidth, total, step_of) for own in _grouped(works)]
    ranked = sorted(described, key=lambda fields: -fields["us"])
    return Diagnosis(
        trace=trace,
        gpu_us=total,
        hotspots=[Hotspot(rank=rank, **fields) for rank, fields in enumerate(ranked, start=1)],
        steps=[_step_time(group, own) for group, own in _groups(trace, steps) if own],
        idle=idle_causes(trace, steps),
        device=trace.device_name,
        copy_bandwidth=bandwidth,
        notes=[*_notes(works), *source],
    )


def _grouped(works: Iterable[GpuWork]) -> list[list[GpuWork]]:
    """Group works of one kind: the same chain, the same run of operators, or the same kernel of an operator."""
    found: dict[tuple[str, ...], list[GpuWork]] = {}
    for work in works:
        key = (work.kind, work.name, work.category if work.kind == "kernel" else "", _op(work))
        found.setdefault(key, []).append(work)
    return list(found.values())


def _op(work: GpuWork) -> str:
    """Return the operator of a kernel whose own name says little."""
    if work.kind != "kernel" or not work.calls or work.calls[0].op is None or "at::native" not in work.events[0].name:
        return ""
    return work.calls[0].op.name


def _hotspot(
    works: Sequence[GpuWork],
    catalogue: Catalogue,
    gpu: TraceGpu,
    bandwidth: float | None,
    total: float,
    step_of: dict[int, str],
) -> dict[str, Any]:
    events = [event for work in works for event in work.events]
    us = sum(event.duration_us for event in events)
    share = copy_share_of(works, bandwidth) if works[0].kind == "kernel" else None
    coverage = coverage_of(works, catalogue, gpu, share)
    by_step: Counter[str] = Counter()
    for event in events:
        if id(event) in step_of:
            by_step[step_of[id(event)]] += event.duration_us  # type: ignore[assignment]
    return {
        "name": works[0].name,
        "kind": works[0].kind,
        "category": works[0].category,
        "us": us,
        "share": us / total if total else 0.0,
        "count": len(works),
        "launches": len(events),
        "kernels": _kernels(events),
        "coverage": coverage,
        "saving": saving_of(works, coverage, bandwidth),
        "op": _op_of_most(events),
        "location": _location_of_most(events),
        "step_us": dict(by_step),
        "works": tuple(works),
    }


def _kernels(events: Sequence[GpuEvent]) -> tuple[KernelTime, ...]:
    times: dict[str, list[float]] = {}
    for event in events:
        times.setdefault(event.name, []).append(event.duration_us)
    found = (KernelTime(name=name, us=sum(own), launches=len(own)) for name, own in times.items())
    return tuple(sorted(found, key=lambda kernel: -kernel.us))


def _longest(events: Sequence[GpuEvent]) -> GpuEvent:
    return max(events, key=lambda event: event.duration_us)


def _op_of_most(events: Sequence[GpuEvent]) -> str | None:
    launch = _longest(events).launch
    op = launch.stack.outermost_op if launch else None
    return op.name if op else None


def _location_of_most(events: Sequence[GpuEvent]) -> str | None:
    launch = _longest(events).launch
    return launch.stack.location if launch else None


def _groups(trace: Trace, steps: Steps) -> list[tuple[str, list[Step]]]:
    return [(group, [s for s in own if not s.is_warmup]) for group, own in steps.groups.items()] or [
        ("", [_whole(trace)])
    ]


def _whole(trace: Trace) -> Step:
    return Step(
        name="",
        group="",
        start_us=trace.gpu[0].start_us,
        end_us=max(event.end_us for event in trace.gpu),
        events=tuple(trace.gpu),
    )


def _step_time(group: str, steps: Sequence[Step]) -> StepGroupTime:
    return StepGroupTime(
        name=group,
        count=len(steps),
        span_us=sum(step.duration_us for step in steps),
        gpu_us=sum(event.duration_us for step in steps for event in step.events),
        busy_us=sum(_busy(step) for step in steps),
    )


def _busy(step: Step) -> float:
    """Return the time in which the step's busiest GPU worked."""
    by_device: dict[int, list[GpuEvent]] = {}
    for event in step.events:
        by_device.setdefault(event.device, []).append(event)
    return max(_union(events, step) for events in by_device.values())


def _union(events: Sequence[GpuEvent], step: Step) -> float:
    total, end = 0.0, step.start_us
    for event in sorted(events, key=lambda event: event.start_us):
        if event.end_us > end:
            total += event.end_us - max(event.start_us, end)
            end = event.end_us
    return total


def _capability(trace: Trace) -> tuple[int, int] | None:
    devices = trace.header.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices and isinstance(devices[0], dict) else {}
    major, minor = first.get("computeMajor"), first.get("computeMinor")
    if is_amd(trace.device_name):  # compute capabilities of AMD have another meaning
        return None
    if isinstance(major, int) and isinstance(minor, int):
        return major, minor
    model = gpu_named(trace.device_name) if trace.device_name else None
    if model is None:
        return None
    own = [int(part) for part in model.limits.capability.split(".")]
    return own[0], own[1]


def _copy_bandwidth(trace: Trace, works: Sequence[GpuWork]) -> tuple[float | None, list[str]]:
    """Return the bandwidth of a copy on the trace's GPU, and a note if it is not a measured one."""
    model = gpu_named(trace.device_name) if trace.device_name else None
    if model is not None and model.copy_bandwidth:
        return model.copy_bandwidth, []
    if model is not None:
        share = model.memory_ceiling / model.bandwidth
        note = f"no copy was measured on {model.title}: savings assume {share:.0%} of its "
        return model.memory_ceiling, [note + f"{model.bandwidth / 1e12:.2f} TB/s"]
    reached = [
        traffic.bytes / work.us * 1e6
        for work in works
        if work.kind == "kernel" and work.us and (traffic := traffic_of_work(work)) and traffic.bytes >= LARGE_BYTES
    ]
    if not reached:
        return None, [f"the bandwidth of {trace.device_name or 'this GPU'} is not known: savings are estimates"]
    best = max(reached)
    return best, [
        f"the GPU is not in the table: savings assume {best / 1e12:.2f} TB/s, its fastest kernel in this trace"
    ]


def _notes(works: Sequence[GpuWork]) -> list[str]:
    notes = []
    with_op = [work for work in works if work.calls and work.calls[0].op is not None]
    if not with_op:
        notes.append(NO_LAUNCHES)
    elif not any(work.calls[0].op.inputs for work in with_op if work.calls[0].op is not None):
        notes.append(NO_SHAPES)
    return notes
