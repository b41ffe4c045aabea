"""The tools of recordings: hotspots of a trace, and what bounds the kernels of a report of Nsight Compute.

A recording is read by the command line in a child process: a trace may take gigabytes of memory to read, and a damaged
one must not end the server. What was read is kept until the file changes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context
from pydantic import BaseModel, Field

from kernwright.mcp.answer import Limit, NextCall, Offset, PagedAnswer, call, page_of
from kernwright.mcp.child import child
from kernwright.mcp.folders import AllowedFolders
from kernwright.mcp.tools.judgement import ProgressReport

MOST_KEPT = 8
MOST_BOUNDS = 4
LONGEST_NAME = 200


class HotspotEntry(BaseModel):
    """GPU work of one kind."""

    rank: int
    name: str
    category: str
    share: float = Field(description="share of the GPU time, between 0 and 1")
    us: float
    count: int
    status: str = Field(description="covered, off; covered, on; partly; in flight; or new")
    reason: str
    saving_us: float | None
    fast_path: str | None = Field(description="the known fast path, and how to turn it on")
    location: str | None


class HotspotPage(PagedAnswer):
    """The hotspots of a trace, the largest one first."""

    trace: str
    device: str | None
    gpu_us: float
    saving_us: float
    idle: list[str] = Field(description="causes of idle time, in sentences")
    notes: list[str]
    hotspots: list[HotspotEntry]


class KernelEntry(BaseModel):
    """One launch of a kernel, and its bound."""

    name: str
    duration_us: float | None
    main: str | None = Field(description="the bound, such as bandwidth; null if the counters do not tell")
    bounds: list[str] = Field(description="each bound with its counters, in words")
    helps: list[str] = Field(description="remedies that usually help against the main bound")
    observations: list[str]
    unknown: list[str]


class KernelPage(PagedAnswer):
    """The kernels of a report."""

    report: str
    kernels: list[KernelEntry]


class TraceTools:
    """Reads recordings."""

    def __init__(self, folders: AllowedFolders) -> None:
        self._folders = folders
        self._kept: dict[tuple[object, ...], dict[str, Any]] = {}
        self._turn = anyio.Lock()  # two large traces at once may need too much memory

    async def hotspots(
        self,
        context: Context[Any, Any],
        trace: Annotated[str, Field(description="Chrome trace of torch.profiler, or export of nsys", min_length=1)],
        offset: Offset = 0,
        limit: Limit = 10,
    ) -> HotspotPage:
        """Rank the GPU work of a trace, with the fast path that covers each part and the time that it would save."""
        path = self._folders.file(trace)
        found = await self._read(["hotspots", str(path), "--json"], path, context)
        shown, paging = page_of(found["hotspots"], offset, limit)
        return HotspotPage(
            trace=trace,
            device=found["device"],
            gpu_us=found["gpu_us"],
            saving_us=found["saving"]["us"],
            idle=[" ".join(filter(None, (each["sentence"], each["advice"]))) for each in found["idle"]],
            notes=found["notes"],
            hotspots=[_hotspot(each) for each in shown],
            next=_after_hotspots(found["hotspots"]),
            **paging,
        )

    async def ncu(
        self,
        context: Context[Any, Any],
        report: Annotated[
            str, Field(description="stored report of Nsight Compute: .ncu-rep, or CSV of the page raw", min_length=1)
        ],
        offset: Offset = 0,
        limit: Limit = 10,
    ) -> KernelPage:
        """Show what bounds each kernel of a stored report of Nsight Compute, with the usual remedies."""
        path = self._folders.file(report)
        found = await self._read(["ncu", "--report", str(path), "--json"], path, context)
        shown, paging = page_of(found["kernels"], offset, limit)
        bound = next((each["bound"]["name"] for each in found["kernels"] if each["bound"]), None)
        after = [call("wiki_for", "read the pages about this bound", bottleneck=bound)] if bound else []
        return KernelPage(report=report, kernels=[_kernel(each) for each in shown], next=after, **paging)

    async def _read(self, words: list[str], path: Path, context: Context[Any, Any]) -> dict[str, Any]:
        """Return what a command prints as JSON."""
        state = path.stat()
        key = (*words, state.st_size, state.st_mtime_ns)
        progress, message = ProgressReport(context), f"reading {path.name}"
        await progress.during("waiting for another recording", self._turn.acquire)
        try:
            if key not in self._kept:
                await progress.tell(message)
                async with child(["kernwright", *words], self._folders.roots[0], limited=True) as process:
                    text = await progress.during(message, process.output)
                    if await process.status() not in (0, 1) or not text:
                        raise await process.error(message)
                if len(self._kept) >= MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[key] = json.loads(text)
            return self._kept[key]
        finally:
            self._turn.release()


def _hotspot(found: dict[str, Any]) -> HotspotEntry:
    path = next(iter(found["fast_paths"]), None)
    return HotspotEntry(
        rank=found["rank"],
        name=found["name"][:LONGEST_NAME],
        category=found["category"],
        share=found["share"],
        us=found["us"],
        count=found["count"],
        status=found["status"],
        reason=found["reason"],
        saving_us=found["saving"]["us"] if found["saving"] else None,
        fast_path=f"{path['name']} ({path['provider']}): {path['turn_on']}" if path else None,
        location=found["location"],
    )


def _after_hotspots(found: list[dict[str, Any]]) -> list[NextCall]:
    if any(each["status"] == "new" for each in found):
        return [call("tasks_list", "find a task for a hotspot that no fast path covers")]
    return [call("wiki_search", "read about the largest hotspot", words=found[0]["name"][:80])] if found else []


def _kernel(found: dict[str, Any]) -> KernelEntry:
    main, seconds = found["bound"], found["duration_s"]
    bounds = [*([main] if main else []), *found["next"]]
    return KernelEntry(
        name=found["kernel"][:LONGEST_NAME],
        duration_us=seconds * 1e6 if seconds is not None else None,
        main=main["name"] if main else None,
        bounds=[f"{each['name']}: {each['what']}" for each in bounds[:MOST_BOUNDS]],
        helps=main["helps"] if main else [],
        observations=found["observations"],
        unknown=found["cannot_be_told"],
    )
