"""The annotated trace as a file: the unchanged events of the recording, one at a time, then the tracks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis
from kernwright.diagnose.perfetto.tracks import track_events
from kernwright.diagnose.recording import is_chrome_trace
from kernwright.diagnose.trace.chrome import ChromeTrace, Event
from kernwright.diagnose.trace.trace import Trace
from kernwright.ledger.files import replacing

COMPRESSION = 4  # almost as small as with the best level, in a third of the time
MOST_PROCESSES = 1 << 31  # Perfetto keeps process numbers in 32 bits


class _Events:
    """The events of a recording, with the processes that they name and the values around them."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.processes: set[object] = set()
        self.header: dict[str, Any] = {}

    def __iter__(self) -> Iterator[Event]:
        if not is_chrome_trace(self._trace.path):
            self.processes.update(event.device for event in self._trace.gpu)
            yield from gpu_events(self._trace)
            return
        source = ChromeTrace(self._trace.path)
        for event in source:
            self.processes.add(event.get("pid"))
            yield event
        self.header = source.header

    @property
    def free_process(self) -> int:
        """The number of a process that no event has."""
        used = {int(p) for p in self.processes if isinstance(p, int) or (isinstance(p, str) and p.isdecimal())}
        highest = max((number for number in used if number < MOST_PROCESSES - 1), default=0)
        return highest + 1


def write_annotated(diagnosis: Diagnosis, path: Path) -> None:
    """Write the trace of a diagnosis with tracks of its own; compressed if the name ends in `.gz`.

    Raises:
        KernwrightError: if the file is the trace itself.
        EnvironmentProblem: if it cannot be written.
    """
    if path.resolve() == diagnosis.trace.path.resolve():
        raise KernwrightError(f"{path} is the trace itself", "name another file for the annotated trace")
    try:
        with replacing(path) as stream, _text(stream, path.suffix == ".gz") as file:
            _write(diagnosis, file)
    except OSError as error:
        raise EnvironmentProblem(
            f"the trace {path} cannot be written: {error.strerror or error}",
            f"make {path.absolute().parent} a writable folder with room for it, or choose another file",
        ) from error


@contextmanager
def _text(stream: IO[bytes], compressed: bool) -> Iterator[IO[bytes]]:
    if not compressed:
        yield stream
        return
    with gzip.GzipFile("", "wb", COMPRESSION, stream, mtime=0) as file:
        yield file  # type: ignore[misc]


def _write(diagnosis: Diagnosis, file: IO[bytes]) -> None:
    events = _Events(diagnosis.trace)
    file.write(b'{"traceEvents": [')
    _write_events(file, events, first=True)
    _write_events(file, track_events(diagnosis, events.free_process), first=not events.processes)
    file.write(b"\n]")
    for key, value in events.header.items():
        file.write(f",\n{json.dumps(key)}: {json.dumps(value)}".encode())
    file.write(b"}\n")


def _write_events(file: IO[bytes], events: Iterable[Event], first: bool) -> None:
    for event in events:
        file.write(b"\n" if first else b",\n")
        file.write(json.dumps(event).encode())
        first = False


def gpu_events(trace: Trace) -> Iterator[Event]:
    """Yield the GPU's events in the format of torch.profiler, for a recording in another format."""
    for event in trace.gpu:
        yield {
            "ph": "X",
            "cat": "kernel" if event.kind == "kernel" else f"gpu_{event.kind}",
            "name": event.name,
            "pid": event.device,
            "tid": event.stream,
            "ts": event.start_us,
            "dur": event.duration_us,
            "args": {"device": event.device, "stream": event.stream, "grid": event.grid, "block": event.block},
        }
    for device in sorted({event.device for event in trace.gpu}):
        yield {"ph": "M", "name": "process_name", "pid": device, "tid": 0, "ts": 0, "args": {"name": f"GPU {device}"}}
