"""Trace: the GPU's events of a recorded run, each with the host code that launched it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernwright.diagnose.trace.chrome import ChromeTrace, Event, TraceError
from kernwright.diagnose.trace.host_stack import HostStack, HostThread, Interned

GpuKind = Literal["kernel", "memcpy", "memset"]

# Category names of torch 1.8 to 2.13. Earlier versions wrote capitals.
GPU_KINDS: dict[str, GpuKind] = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
OPS = frozenset({"cpu_op", "operator"})
PYTHON = frozenset({"python_function", "python"})
RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "xpu_runtime", "privateuse1_runtime"})
ANNOTATIONS = frozenset({"user_annotation"})
GPU_ANNOTATIONS = frozenset({"gpu_user_annotation"})


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of the CUDA runtime or driver that put work on the GPU, and the host code around it.

    `stack` is what the profiler recorded on that thread at that time, from the outermost to the innermost: operators,
    Python frames, modules and annotations.
    """

    name: str
    start_us: float
    duration_us: float
    thread: tuple[str, str]
    stack: HostStack


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """A kernel, copy or fill on the GPU."""

    kind: GpuKind
    name: str
    start_us: float
    duration_us: float
    device: int
    stream: int
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    registers: int | None = None
    bytes: int | None = None
    launch: Launch | None = None

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


@dataclass(frozen=True, slots=True)
class Annotation:
    """A range that the program named, such as a step."""

    name: str
    start_us: float
    duration_us: float

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


@dataclass(frozen=True)
class Trace:
    """A recorded run.

    Attributes:
        gpu: all events of all GPUs, by start.
        launches: all calls that put work on a GPU, by start; also those whose kernels the trace lacks.
        annotations: ranges that the program named, on the host, by start.
        threads: the host threads, with everything that they ran.
        gpu_annotations: the same ranges on the GPU's timeline, by start. A range that used several streams has one
            entry for each stream.
        header: the trace's other top-level values, such as `deviceProperties`.
    """

    path: Path
    gpu: Sequence[GpuEvent]
    launches: Sequence[Launch]
    annotations: Sequence[Annotation]
    threads: Sequence[HostThread]
    gpu_annotations: Sequence[Annotation] = ()
    header: dict[str, Any] = field(default_factory=dict)

    @property
    def device_name(self) -> str | None:
        """The name of the first GPU, if the trace has it."""
        devices = self.header.get("deviceProperties")
        if isinstance(devices, list) and devices and isinstance(devices[0], dict):
            return str(devices[0].get("name", "")) or None
        return None

    @property
    def multiprocessors(self) -> int | None:
        """The number of multiprocessors of the first GPU, if the trace has it."""
        devices = self.header.get("deviceProperties")
        first = devices[0] if isinstance(devices, list) and devices else None
        return _integer(first.get("numSms")) if isinstance(first, dict) else None


def read_trace(path: Path, progress: Callable[[float], None] | None = None) -> Trace:
    """Read a Chrome trace that torch.profiler wrote, plain or compressed.

    Raises:
        TraceError: if the file is not a trace, is damaged, or has no events of a GPU.
    """
    source = ChromeTrace(path, progress)
    builder = _Builder()
    for event in source:
        builder.add(event)
    if not builder.gpu:
        raise TraceError(
            f"{path} has no events of a GPU among its {source.events_read} events",
            "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a machine with a GPU",
        )
    return builder.trace(path, source.header)


@dataclass(slots=True)
class _RawLaunch:
    name: int
    start_us: float
    duration_us: float
    thread: tuple[str, str]
    external: int | None


@dataclass(slots=True)
class _RawGpu:
    kind: GpuKind
    name: int
    start_us: float
    duration_us: float
    correlation: int | None
    external: int | None
    args: tuple[Any, ...]  # device, stream, grid, block, registers, bytes


class _Builder:
    """Gathers events in compact columns, then joins kernels with launches and launches with the host's stacks."""

    def __init__(self) -> None:
        self.names = Interned()
        self.threads: dict[tuple[str, str], HostThread] = {}
        self.launches: dict[int, _RawLaunch] = {}
        self.gpu: list[_RawGpu] = []
        self.annotations: list[Annotation] = []
        self.gpu_annotations: list[Annotation] = []
        self.op_of_external: dict[int, tuple[HostThread, int]] = {}

    def add(self, event: Event) -> None:
        if event.get("ph") != "X":
            return
        category = str(event.get("cat", "")).casefold()
        try:
            start, duration = float(event["ts"]), float(event.get("dur", 0.0))
        except (KeyError, TypeError, ValueError):
            return
        if (kind := GPU_KINDS.get(category)) is not None:
            self._add_gpu(kind, event, start, duration)
        elif category in OPS:
            self._add_op(event, start, duration)
        elif category in PYTHON:
            self._thread(event).add_frame(self.names.number(str(event.get("name", ""))), start, duration)
        elif category in RUNTIME:
            self._add_launch(event, start, duration)
        elif category in ANNOTATIONS:
            name = str(event.get("name", ""))
            self.annotations.append(Annotation(name, start, duration))
            self._thread(event).add_annotation(self.names.number(name), start, duration)
        elif category in GPU_ANNOTATIONS:
            self.gpu_annotations.append(Annotation(str(event.get("name", "")), start, duration))

    def _thread(self, event: Event) -> HostThread:
        key = str(event.get("pid")), str(event.get("tid"))
        if key not in self.threads:
            self.threads[key] = HostThread(key, self.names)
        return self.threads[key]

    def _add_op(self, event: Event, start: float, duration: float) -> None:
        thread = self._thread(event)
        args = _args(event)
        inputs = tuple(args.get(key) for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"))
        number = thread.add_op(self.names.number(str(event.get("name", ""))), start, duration, inputs)
        if (external := _integer(args.get("External id", args.get("external id")))) is not None:
            self.op_of_external[external] = thread, number

    def _add_launch(self, event: Event, start: float, duration: float) -> None:
        args = _args(event)
        thread = self._thread(event)
        external = _integer(args.get("External id", args.get("external id")))
        raw = _RawLaunch(self.names.number(str(event.get("name", ""))), start, duration, thread.key, external)
        thread.add_runtime_call(raw.name, start, duration)
        correlation = _integer(args.get("correlation"))
        if correlation is not None:
            # CUPTI records a runtime call and the driver call within it under one number. The runtime call is kept.
            known = self.launches.get(correlation)
            if known is None or known.start_us > start:
                self.launches[correlation] = raw

    def _add_gpu(self, kind: GpuKind, event: Event, start: float, duration: float) -> None:
        args = _args(event)
        details = (
            _integer(args.get("device")) or 0,
            _integer(args.get("stream", event.get("tid"))) or 0,
            _integers(args.get("grid")),
            _integers(args.get("block")),
            _integer(args.get("registers per thread")),
            _integer(args.get("bytes")),
        )
        self.gpu.append(
            _RawGpu(
                kind=kind,
                name=self.names.number(str(event.get("name", ""))),
                start_us=start,
                duration_us=duration,
                correlation=_integer(args.get("correlation")),
                external=_integer(args.get("External id", args.get("external id"))),
                args=details,
            )
        )

    def trace(self, path: Path, header: dict[str, Any]) -> Trace:
        launches = self._resolved_launches()
        by_external = self._launches_of_ops_alone(launches)
        gpu = []
        for raw in self.gpu:
            launch = launches.get(raw.correlation) if raw.correlation is not None else None
            if launch is None and raw.external is not None:
                launch = by_external.get(raw.external)
            device, stream, grid, block, registers, size = raw.args
            gpu.append(
                GpuEvent(
                    kind=raw.kind,
                    name=self.names[raw.name],
                    start_us=raw.start_us,
                    duration_us=raw.duration_us,
                    device=device,
                    stream=stream,
                    grid=grid,
                    block=block,
                    registers=registers,
                    bytes=size,
                    launch=launch,
                )
            )
        gpu.sort(key=lambda event: event.start_us)
        return Trace(
            path=path,
            gpu=gpu,
            launches=sorted(launches.values(), key=lambda launch: launch.start_us),
            annotations=sorted(self.annotations, key=lambda range_: range_.start_us),
            threads=list(self.threads.values()),
            gpu_annotations=sorted(self.gpu_annotations, key=lambda range_: range_.start_us),
            header=header,
        )

    def _resolved_launches(self) -> dict[int, Launch]:
        """Return the launches that some event of the GPU belongs to, by correlation, with their stacks."""
        wanted = {raw.correlation for raw in self.gpu}
        resolved: dict[int, Launch] = {}
        by_thread: dict[tuple[str, str], list[int]] = {}
        for correlation, raw in self.launches.items():
            if correlation in wanted:
                by_thread.setdefault(raw.thread, []).append(correlation)
        for key, correlations in by_thread.items():
            times = array("d", (self.launches[number].start_us for number in correlations))
            for number, stack in zip(correlations, self.threads[key].stacks_at(times), strict=True):
                resolved[number] = self._launch(self.launches[number], stack)
        return resolved

    def _launches_of_ops_alone(self, launches: dict[int, Launch]) -> dict[int, Launch]:
        """Return a launch for each operator whose kernels have no launch, by the operator's external id."""
        missing = {
            raw.external
            for raw in self.gpu
            if raw.external is not None and (raw.correlation is None or raw.correlation not in launches)
        }
        found = {}
        for external in missing & self.op_of_external.keys():
            thread, number = self.op_of_external[external]
            start = thread.op_start(number)
            stack = next(iter(thread.stacks_at(array("d", [start]))))
            found[external] = Launch("", start, 0.0, thread.key, stack)
        return found

    def _launch(self, raw: _RawLaunch, stack: HostStack) -> Launch:
        return Launch(self.names[raw.name], raw.start_us, raw.duration_us, raw.thread, stack)


def _args(event: Event) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _integer(value: object) -> int | None:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, OverflowError):
        return None


def _integers(value: object) -> tuple[int, ...]:
    return tuple(v for item in value if (v := _integer(item)) is not None) if isinstance(value, list) else ()
