"""Fusion: consecutive operators, and the kernel that could do their work."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kernwright.diagnose.hotspots.confidence import Confidence, confidence_of
from kernwright.diagnose.hotspots.hotspot import Hotspot
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis

LEAST_SHARE = 0.01


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """Operators that one kernel could replace.

    Attributes:
        pattern: the name of the chain, or its operators.
        us: their time.
        saves_us: the expected saving; None if it cannot be computed.
        kernels: its kernels, longest first.
        path: the fast path that does their work; None if none is known.
        turn_on: the step that turns it on.
        source: the place of its code.
        rationale: the reasons for the match and for the confidence.
    """

    pattern: str
    confidence: Confidence
    us: float
    share: float
    saves_us: float | None
    kernels: tuple[str, ...]
    location: str | None
    path: str | None
    turn_on: str
    source: str
    rationale: str


def fusions_of(diagnosis: Diagnosis, chosen: Collection[int] | None = None) -> list[Fusion]:
    """Return the operators that could be fused, longest first.

    Args:
        chosen: ids of the events that count; by default all events of the diagnosis.
    """
    candidates = diagnosis.with_status("covered, off", "partly", "in flight", "new")
    timed = [(_time(each, chosen), each) for each in candidates if each.kind != "kernel"]
    total = _total(diagnosis.hotspots, chosen)
    kept = sorted(((us, each) for us, each in timed if us >= LEAST_SHARE * total > 0), key=lambda pair: -pair[0])
    return [_fusion(each, us, total) for us, each in kept]


def _total(hotspots: Sequence[Hotspot], chosen: Collection[int] | None) -> float:
    return sum(_time(each, chosen) for each in hotspots)


def _time(hotspot: Hotspot, chosen: Collection[int] | None) -> float:
    if chosen is None:
        return hotspot.us
    return sum(event.duration_us for work in hotspot.works for event in work.events if id(event) in chosen)


def _fusion(hotspot: Hotspot, us: float, total: float) -> Fusion:
    confidence, basis = confidence_of(hotspot)
    path, part = hotspot.coverage.path, us / hotspot.us
    return Fusion(
        pattern=hotspot.name,
        confidence=confidence,
        us=us,
        share=us / total,
        saves_us=None if hotspot.saving is None else part * hotspot.saving.us,
        kernels=tuple(kernel.name for kernel in hotspot.kernels),
        location=hotspot.location,
        path=path.name if path else None,
        turn_on=path.turn_on if path else "",
        source=path.source if path else "",
        rationale=f"{hotspot.coverage.reason} ({basis})",
    )
