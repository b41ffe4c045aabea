"""The SQLite export of an nsys report, read as a trace."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernwright.diagnose.nsys.database import Database, opened
from kernwright.diagnose.trace.chrome import TraceError
from kernwright.diagnose.trace.host_stack import HostThread, Interned
from kernwright.diagnose.trace.trace import Annotation, GpuEvent, GpuKind, Launch, Trace

NS_PER_US = 1000.0
WHOLE_GRAPHS = "wholeGraphs"  # entry of the header: how many CUDA graphs were recorded without their kernels
_PID_SHIFT, _ID_MASK = 24, 0xFFFFFF
_DOMAIN_CREATED = 75
_VERSION = re.compile(r"_v\d+(_ptsz|_ptds)?$|_ptsz$|_ptds$")  # cudaLaunchKernel_v7000
_LIBRARIES = re.compile(r"nccl|nvshmem|cub\b|cccl|thrust|cublas|cudnn|cutensor|cufft|cusparse", re.IGNORECASE)
_OPERATOR = re.compile(r"^(?P<name>[A-Za-z_]\w*::[\w.]+)(, .*)?$")  # a range of torch's emit_nvtx
_SIZES = re.compile(r"\bsizes = (\[[\[\]\d, ]*\])")
# CUPTI's numbers, for exports without the tables ENUM_CUDA_MEMCPY_OPER and ENUM_CUDA_MEM_KIND.
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_MEMORIES = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static"}
_TABLES: dict[str, GpuKind] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memset",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "kernel",
}
_COLUMNS = (
    "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName", "gridX",
    "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "bytes", "copyKind", "srcKind", "dstKind",
    "graphId",
)  # fmt: skip

Correlation = tuple[int | None, int]  # process and number


def read_export(path: Path) -> Trace:
    """Read the SQLite export of an nsys report as a trace. Times are in microseconds.

    Raises:
        TraceError: if the file is not an export, is damaged, or has no events of a GPU.
    """
    with opened(path) as database:
        trace = _ExportReader(database).trace(path)
    if not trace.gpu:
        raise TraceError(
            f"{path} has no events of a GPU",
            "record with `nsys profile -t cuda,nvtx` on a machine with a GPU, and wait until the program has ended",
        )
    return trace


@dataclass(slots=True)
class _Call:
    """A call of the CUDA runtime or driver that put work on a GPU."""

    name: int
    start_us: float
    duration_us: float
    thread: tuple[str, str]


class _ExportReader:
    """Reads the tables of an export and joins them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._strings: dict[object, str] = dict(database.rows("StringIds", "id", "value"))
        self._names = Interned()
        self._threads: dict[int, HostThread] = {}
        self._annotations: list[Annotation] = []
        self._copies = _COPIES | self._enumeration("ENUM_CUDA_MEMCPY_OPER")
        self._memories = _MEMORIES | self._enumeration("ENUM_CUDA_MEM_KIND")

    def trace(self, path: Path) -> Trace:
        """Return the whole export as a trace."""
        self._read_ranges()
        launches = self._launches()
        gpu = [
            self._event(kind, row, launches.get(_correlation(row[4], _process(row[5]))))
            for table, kind in _TABLES.items()
            for row in self._database.rows(table, *_COLUMNS)
            if row[0] is not None and row[1] is not None
        ]
        return Trace(
            path=path,
            gpu=sorted(gpu, key=lambda event: event.start_us),
            launches=sorted(launches.values(), key=lambda launch: launch.start_us),
            annotations=sorted(self._annotations, key=lambda each: each.start_us),
            threads=list(self._threads.values()),
            header={
                "deviceProperties": list(self._devices()),
                WHOLE_GRAPHS: sum(1 for _ in self._database.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "start")),
            },
        )

    def _enumeration(self, table: str) -> dict[int, str]:
        return {int(number): str(label) for number, label in self._database.rows(table, "id", "label") if label}

    def _text(self, number: object, otherwise: str = "") -> str:
        return self._strings.get(number, otherwise)

    def _thread(self, global_id: object) -> HostThread:
        number = global_id if isinstance(global_id, int) else 0
        if number not in self._threads:
            key = str(_process(number)), str(number & _ID_MASK)
            self._threads[number] = HostThread(key, self._names)
        return self._threads[number]

    def _read_ranges(self) -> None:
        """Read the ranges of NVTX: operators of torch's emit_nvtx, and ranges of the program, but not of libraries."""
        columns = ("start", "end", "text", "textId", "globalTid", "domainId", "eventType")
        rows = list(self._database.rows("NVTX_EVENTS", *columns))
        names = {(row[5], row[6]): row[2] or self._text(row[3]) for row in rows if row[6] == _DOMAIN_CREATED}
        of_libraries = {domain for (domain, _), name in names.items() if _LIBRARIES.search(name)}
        for start, end, text, number, thread, domain, event_type in rows:
            if end is None or end <= start or event_type == _DOMAIN_CREATED or domain in of_libraries:
                continue
            self._add_range(text or self._text(number), start / NS_PER_US, (end - start) / NS_PER_US, thread)

    def _add_range(self, name: str, start: float, duration: float, thread: object) -> None:
        operator = _OPERATOR.match(name)
        if operator:
            found = self._names.number(operator["name"])
            self._thread(thread).add_op(found, start, duration, (_sizes(name), None, None, None))
        elif name:
            self._annotations.append(Annotation(name, start, duration))
            self._thread(thread).add_annotation(self._names.number(name), start, duration)

    def _launches(self) -> dict[Correlation, Launch]:
        """Return the calls that put work on a GPU, each with the open ranges of its thread."""
        wanted = {
            _correlation(number, _process(process))
            for table in _TABLES
            for number, process in self._database.rows(table, "correlationId", "globalPid")
        }
        by_thread: dict[int, list[tuple[Correlation, int, float, float]]] = {}
        rows = self._database.rows(
            "CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "globalTid", "correlationId", "nameId"
        )
        for start, end, thread, number, name_id in rows:
            name = self._names.number(_VERSION.sub("", self._text(name_id, "unknown call")))
            began, took = start / NS_PER_US, (end - start) / NS_PER_US
            self._thread(thread).add_runtime_call(name, began, took)
            for key in (_correlation(number, _process(thread)), _correlation(number, None)):
                if key in wanted:
                    by_thread.setdefault(thread, []).append((key, name, began, took))
        found: dict[Correlation, Launch] = {}
        for thread, calls in by_thread.items():
            host = self._thread(thread)
            stacks = host.stacks_at(array("d", (began for _, _, began, _ in calls)))
            for (key, name, began, took), stack in zip(calls, stacks, strict=True):
                found[key] = Launch(self._names[name], began, took, host.key, stack)
        return found

    def _event(self, kind: GpuKind, row: tuple[Any, ...], launch: Launch | None) -> GpuEvent:
        start, end, device, stream, _, _, demangled, short, *shape = row
        gx, gy, gz, bx, by, bz, registers, size, copy, source, target, graph = shape
        return GpuEvent(
            kind=kind,
            name=self._name(kind, self._text(demangled) or self._text(short), (copy, source, target), graph),
            start_us=start / NS_PER_US,
            duration_us=(end - start) / NS_PER_US,
            device=device or 0,
            stream=stream or 0,
            grid=() if gx is None else (gx, gy, gz),
            block=() if bx is None else (bx, by, bz),
            registers=registers,
            bytes=size,
            launch=launch,
        )

    def _name(self, kind: GpuKind, kernel: str, copy: tuple[Any, Any, Any], graph: object) -> str:
        """Return the name of a kernel. Copies and fills are named as torch.profiler names them."""
        if kind == "memset":
            return "Memset (Device)"
        if kind == "memcpy":
            direction, source, target = copy
            way = _short_copy(self._copies.get(direction, "copy"))
            places = [self._memories.get(place, "") for place in (source, target)]
            return f"Memcpy {way} ({' -> '.join(places)})" if all(places) else f"Memcpy {way}"
        return kernel or (f"CUDA graph {graph}" if graph is not None else "unknown kernel")

    def _devices(self) -> Iterator[dict[str, Any]]:
        rows = sorted(self._database.rows("TARGET_INFO_GPU", "id", "name", "smCount"), key=lambda row: row[0] or 0)
        for number, name, multiprocessors in rows:
            yield {"id": number, "name": name, "numSms": multiprocessors}


def _process(global_id: object) -> int | None:
    """Return the process of a serialized id of a thread or process."""
    return global_id >> _PID_SHIFT & _ID_MASK if isinstance(global_id, int) else None


def _correlation(number: object, process: int | None) -> Correlation:
    """Return the key that joins an event with its launch. Older exports have no process."""
    return process, number if isinstance(number, int) else -1


def _short_copy(label: str) -> str:
    """Return the short name of a copy: `HtoD` for `Host-to-Device`."""
    words = re.findall(r"Host|Device|Array|Peer", label)
    return f"{words[0][0]}to{words[1][0]}" if len(words) > 1 else label


def _sizes(name: str) -> list[Any] | None:
    """Return the input shapes that emit_nvtx(record_shapes=True) wrote into a range's name."""
    found = _SIZES.search(name)
    try:
        return list(json.loads(found[1])) if found else None
    except ValueError:
        return None
