"""Idle causes of a trace: for each kind of step, the host code that its GPU waits for."""

from __future__ import annotations

from collections.abc import Sequence

from kernwright.diagnose.hotspots.idle_cause import (
    LEAST_SHARE,
    IdleCause,
    idle_cause,
    launch_cause,
    untold_cause,
    waits_for_launches,
)
from kernwright.diagnose.idle_time import Waited, waits_in
from kernwright.diagnose.steps import Steps
from kernwright.diagnose.trace.trace import GpuEvent, Trace


def idle_causes(trace: Trace, steps: Steps) -> list[IdleCause]:
    """Return the causes of idle time of each kind of step, longest first. Idle time below 5 % is left out."""
    device = _busiest(trace)
    groups = {group: [step for step in own if not step.is_warmup] for group, own in steps.groups.items()}
    spans = {group: [(step.start_us, step.end_us) for step in own] for group, own in groups.items()}
    if not spans:
        spans = {"": [(trace.gpu[0].start_us, max(event.end_us for event in trace.gpu))]}
    waits = waits_in(trace, spans, device)
    own_events = [event for event in trace.gpu if event.device == device]
    found = []
    for group, own in spans.items():
        launches = [e for step in groups.get(group, []) for e in step.events] or own_events
        found += _causes(group, waits[group], own, _idle(own_events, own), launches)
    return sorted(found, key=lambda cause: -cause.waited_us)


def _busiest(trace: Trace) -> int:
    times: dict[int, float] = {}
    for event in trace.gpu:
        times[event.device] = times.get(event.device, 0.0) + event.duration_us
    return max(times, key=lambda device: times[device])


def _idle(events: Sequence[GpuEvent], spans: Sequence[tuple[float, float]]) -> float:
    """Return the idle time within spans; before the first event of a span, too."""
    total = sum(end - start for start, end in spans)
    busy, at, end_of_last = 0.0, 0, float("-inf")
    for event in events:
        while at < len(spans) and spans[at][1] <= event.start_us:
            at += 1
        number = at
        while number < len(spans) and spans[number][0] < event.end_us:
            start = max(event.start_us, spans[number][0], end_of_last)
            busy += max(0.0, min(event.end_us, spans[number][1]) - start)
            number += 1
        end_of_last = max(end_of_last, event.end_us)
    return max(0.0, total - busy)


def _causes(
    group: str,
    waits: Sequence[Waited],
    spans: Sequence[tuple[float, float]],
    idle_us: float,
    events: Sequence[GpuEvent],
) -> list[IdleCause]:
    span_us = sum(end - start for start, end in spans)
    if not span_us or idle_us < LEAST_SHARE * span_us:
        return []
    if all(event.launch is None for event in events):
        return [untold_cause(group, idle_us, span_us, len(spans))]
    own = [each for each in waits if not waits_for_launches(each)]
    found = [idle_cause(group, each, idle_us, span_us, len(spans)) for each in own]
    launches = [each for each in waits if waits_for_launches(each)]
    if launches:
        found.append(launch_cause(group, launches, idle_us, span_us, len(spans), events))
    return [cause for cause in found if cause.waited_us >= LEAST_SHARE * span_us]
