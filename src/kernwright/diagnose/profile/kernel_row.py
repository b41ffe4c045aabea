"""KernelRow: one kernel of a profile, with its category, its time, and the code that launches it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernwright.diagnose.category import Category
from kernwright.diagnose.profile.host_sites import HostSite
from kernwright.diagnose.trace.trace import GpuEvent

Found = tuple[GpuEvent, Category, HostSite]


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """All launches of one kernel for one category of work.

    Attributes:
        share: part of the time of all events of the profile.
        location: the Python code that launched most of it, as `file(line): function`; None if it is not known.
        location_share: part of the kernel's time that this code launched.
        op: the operator that launched most of it; None if it is not known.
        is_mapped: True if location and operator come from another trace.
    """

    kernel: str
    category: Category
    us: float
    share: float
    launches: int
    location: str | None = None
    location_share: float = 0.0
    op: str | None = None
    is_mapped: bool = False


def kernel_rows(found: Sequence[Found]) -> list[KernelRow]:
    """Return a row per kernel and category, longest first."""
    total = sum(event.duration_us for event, _, _ in found)
    by_kernel: dict[tuple[str, Category], list[Found]] = {}
    for each in found:
        by_kernel.setdefault((each[0].name, each[1]), []).append(each)
    rows = [_row(name, category, each, total) for (name, category), each in by_kernel.items()]
    return sorted(rows, key=lambda row: (-row.us, row.kernel))


def _row(name: str, category: Category, found: Sequence[Found], total: float) -> KernelRow:
    us = sum(event.duration_us for event, _, _ in found)
    location, located = _longest((site.location, event.duration_us) for event, _, site in found)
    op, _ = _longest((site.op, event.duration_us) for event, _, site in found)
    return KernelRow(
        kernel=name,
        category=category,
        us=us,
        share=us / total if total else 0.0,
        launches=len(found),
        location=location,
        location_share=located / us if us else 0.0,
        op=op,
        is_mapped=any(site.is_mapped for _, _, site in found),
    )


def _longest(times: Iterable[tuple[str | None, float]]) -> tuple[str | None, float]:
    """Return the name with the largest sum of times, and that sum."""
    sums: dict[str, float] = {}
    for name, us in times:
        if name is not None:
            sums[name] = sums.get(name, 0.0) + us
    longest = max(sums, key=lambda name: sums[name], default=None)
    return longest, sums[longest] if longest is not None else 0.0
