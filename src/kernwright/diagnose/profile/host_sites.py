"""Host sites: the Python code and the operator behind each event, also where a CUDA graph hides them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernwright.diagnose.trace.trace import GpuEvent, Launch


@dataclass(frozen=True, slots=True)
class HostSite:
    """The code that launched an event.

    Attributes:
        is_mapped: True if the site comes from another trace of the same program.
    """

    location: str | None
    op: str | None
    is_mapped: bool = False


NOWHERE = HostSite(None, None)
Key = tuple[str, tuple[int, ...]]


def host_site(event: GpuEvent) -> HostSite:
    """Return the code that launched an event. Parts that the trace does not have are empty."""
    return NOWHERE if event.launch is None else _site_of(event.launch)


def is_graph_launch(launch: Launch) -> bool:
    """Return whether a launch replays a CUDA graph."""
    return launch.name.startswith(("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"))


def _site_of(launch: Launch) -> HostSite:
    if is_graph_launch(launch):
        return NOWHERE  # the code that replays a graph says nothing about its kernels
    op = launch.stack.outermost_op
    return HostSite(launch.stack.location, op.name if op else None)


def host_sites(events: Sequence[GpuEvent], mapping: Sequence[GpuEvent] = ()) -> list[HostSite]:
    """Return the site of each event.

    Args:
        events: the events.
        mapping: events of another trace of the same program, recorded without CUDA graphs. An event without a site
            gets one from there. If both traces launch the kernel equally often, it is the site of the launch at the
            same place of the order. Otherwise it is the code that launches most of this kernel.
    """
    own = [host_site(event) for event in events]
    if not mapping:
        return own
    known: dict[Key, list[HostSite]] = {}
    for event in mapping:
        site = host_site(event)
        if site != NOWHERE:
            known.setdefault((event.name, event.grid), []).append(site)
    by_name: dict[str, list[HostSite]] = {}
    for (name, _), sites in known.items():
        by_name.setdefault(name, []).extend(sites)
    counts = Counter((event.name, event.grid) for event in events)
    seen: Counter[Key] = Counter()
    found = []
    for event, site in zip(events, own, strict=True):
        key = event.name, event.grid
        if site.location is None:
            site = _mapped(site, known.get(key, []), by_name.get(event.name, []), seen[key], counts[key])
        seen[key] += 1
        found.append(site)
    return found


def _mapped(own: HostSite, same: Sequence[HostSite], named: Sequence[HostSite], place: int, count: int) -> HostSite:
    """Return the site at the same place of the order, else the most frequent one, else the event's own site."""
    if same and (count % len(same) == 0 or len(same) % count == 0):
        site = same[place % len(same)]
    elif same or named:
        ((site, _),) = Counter(same or named).most_common(1)
    else:
        return own
    return HostSite(site.location, own.op or site.op, is_mapped=True)
