"""Overlap: kernels and copies that run alone and could run next to other work, and those that already do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernwright.diagnose.category import Category
from kernwright.diagnose.profile.kernel_row import Found
from kernwright.diagnose.profile.streams import Streams

OverlapVerdict = Literal["headroom", "low-roi-hidden"]
Priority = Literal["high", "medium", "low"]
DependencyRisk = Literal["low", "high", "unclear"]
Advice = Literal["try overlap", "try fusion", "check deps", "skip overlap"]
Reason = Literal["communication", "copy", "small grid"]

LEAST_SHARE = 0.01  # share of the time of all events
HIDDEN_SHARE = 0.8  # an event hidden to this extent has little left to gain
HIGH_PRIORITY_SHARE = 0.05
MOSTLY = 0.5  # share of the launches that must agree to tell a dependency
_FUSIBLE: frozenset[Category] = frozenset({"norm", "modulation", "rope", "activation", "layout", "elementwise"})


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """One kernel or copy that runs alone, or that already runs next to other work.

    Attributes:
        priority: `high` from 5 % of the time, `medium` from 1 %, `low` if it is hidden.
        exposed_us: time in which no other stream of its GPU worked.
        hidden_share: part of its time in which another stream worked.
        signal: the pattern that the trace shows.
        dependency: the evidence that the work after it needs its result.
    """

    priority: Priority
    verdict: OverlapVerdict
    kernel: str
    location: str | None
    us: float
    exposed_us: float
    hidden_share: float
    signal: str
    dependency: DependencyRisk
    advice: Advice


def overlaps_of(found: Sequence[Found], multiprocessors: int | None) -> list[Overlap]:
    """Return the kernels and copies that may overlap with other work, those with most exposed time first.

    Args:
        found: events with category and site, by start.
        multiprocessors: of the GPU, to tell kernels that leave a part of it empty; None if it is not known.
    """
    total = sum(event.duration_us for event, _, _ in found)
    streams = Streams([event for event, _, _ in found])
    groups: dict[tuple[Reason, str], list[Found]] = {}
    for each in found:
        reason = _reason(each, multiprocessors)
        if reason is not None:
            groups.setdefault((reason, each[0].name), []).append(each)
    rows = [
        _overlap(reason, group, streams, total)
        for (reason, _), group in groups.items()
        if sum(event.duration_us for event, _, _ in group) >= LEAST_SHARE * total
    ]
    return sorted(rows, key=lambda row: (row.verdict == "low-roi-hidden", -row.exposed_us, row.kernel))


def _reason(each: Found, multiprocessors: int | None) -> Reason | None:
    """Return the reason why an event may overlap: it only moves data, or leaves a part of the GPU empty."""
    event, category, _ = each
    if category == "communication":
        return "communication"
    if event.kind == "memcpy":
        return "copy"
    blocks = math.prod(event.grid) if event.grid else 0
    return "small grid" if multiprocessors and 0 < blocks < multiprocessors else None


def _overlap(reason: Reason, group: Sequence[Found], streams: Streams, total: float) -> Overlap:
    us = sum(event.duration_us for event, _, _ in group)
    exposed = us - sum(streams.hidden_us(event) for event, _, _ in group)
    hidden_share = 1 - exposed / us if us else 0.0
    verdict: OverlapVerdict = "low-roi-hidden" if hidden_share >= HIDDEN_SHARE else "headroom"
    dependency = _dependency(group, streams)
    is_high = exposed >= HIGH_PRIORITY_SHARE * total
    return Overlap(
        priority="low" if verdict == "low-roi-hidden" else "high" if is_high else "medium",
        verdict=verdict,
        kernel=group[0][0].name,
        location=next((site.location for _, _, site in group if site.location), None),
        us=us,
        exposed_us=exposed,
        hidden_share=hidden_share,
        signal=_signal(reason, group, hidden_share),
        dependency=dependency,
        advice=_advice(reason, group[0][1], verdict, dependency),
    )


def _dependency(group: Sequence[Found], streams: Streams) -> DependencyRisk:
    """Return whether work of other streams waited for the events of a group."""
    seen = Counter(streams.follower(event) for event, _, _ in group)
    if seen["waits"] >= MOSTLY * len(group):
        return "high"
    return "low" if seen["runs along"] >= MOSTLY * len(group) else "unclear"


def _signal(reason: Reason, group: Sequence[Found], hidden_share: float) -> str:
    hidden = f"{hidden_share:.0%} of its time behind other streams"
    if reason == "small grid":
        blocks = sorted(math.prod(event.grid) for event, _, _ in group)
        return f"{blocks[len(blocks) // 2]} blocks do not fill the GPU; {hidden}"
    if any("Pageable" in event.name for event, _, _ in group):
        return f"pageable host memory: the copy cannot overlap before it is pinned; {hidden}"
    return f"{reason}; {hidden}"


def _advice(reason: Reason, category: Category, verdict: OverlapVerdict, dependency: DependencyRisk) -> Advice:
    if verdict == "low-roi-hidden":
        return "skip overlap"
    if reason == "small grid" and category in _FUSIBLE:
        return "try fusion"
    if dependency == "high" or reason == "small grid":
        return "check deps"
    return "try overlap"
