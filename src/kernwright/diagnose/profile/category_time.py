"""Categories of the events of a trace with their neighbours taken into account, and the time of each category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernwright.diagnose.category import CATEGORIES, Category, category_of
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis
from kernwright.diagnose.profile.kernel_row import Found
from kernwright.diagnose.trace.trace import GpuEvent

# A kernel of these categories gets the category of its chain, because its own name says little.
_VAGUE: frozenset[Category] = frozenset({"elementwise", "layout", "memory", "other"})


@dataclass(frozen=True, kw_only=True)
class CategoryTime:
    """The time of one category. `share` is the part of the time of all events."""

    category: Category
    us: float
    share: float
    launches: int


def categories_of(diagnosis: Diagnosis) -> dict[int, Category]:
    """Return the category of each event by its id. An elementwise kernel of a chain has the chain's category."""
    found = {}
    for work in (work for hotspot in diagnosis.hotspots for work in hotspot.works):
        for event in work.events:
            own = category_of(event)
            found[id(event)] = work.category if own in _VAGUE else own
    return found


def category_times(found: Sequence[Found]) -> list[CategoryTime]:
    """Return the categories that occur, longest first."""
    total = sum(event.duration_us for event, _, _ in found)
    by_category: dict[Category, list[GpuEvent]] = {}
    for event, category, _ in found:
        by_category.setdefault(category, []).append(event)
    times = [_time(category, by_category[category], total) for category in CATEGORIES if category in by_category]
    return sorted(times, key=lambda time: -time.us)


def _time(category: Category, events: Sequence[GpuEvent], total: float) -> CategoryTime:
    us = sum(event.duration_us for event in events)
    return CategoryTime(category=category, us=us, share=us / total if total else 0.0, launches=len(events))
