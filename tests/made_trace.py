"""Chrome traces as torch.profiler writes them, made of a few calls."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

HOST, THREAD = 401, 401


class MadeTrace:
    """A trace that is built up event by event. Times are in microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._correlation = 0

    def range(self, category: str, name: str, start: float, end: float, **args: object) -> None:
        """Add a range on the host's thread."""
        self._add(category, name, start, end, HOST, THREAD, args)

    def kernel(
        self,
        name: str,
        start: float,
        duration: float,
        launched: float | None = None,
        *,
        device: int = 0,
        stream: int = 7,
        kind: str = "kernel",
        call: str = "cudaLaunchKernel",
        **args: object,
    ) -> None:
        """Add an event of the GPU, and its launch on the host if `launched` is given."""
        self._correlation += 1
        known = {"device": device, "stream": stream, "correlation": self._correlation} | args
        if launched is not None:
            runtime = {"correlation": self._correlation}
            self._add("cuda_runtime", call, launched, launched + 3, HOST, THREAD, runtime)
        self._add(kind, name, start, start + duration, device, stream, known)

    def gpu_range(self, name: str, start: float, end: float, device: int = 0, stream: int = 7) -> None:
        """Add a named range on the GPU's timeline."""
        self._add("gpu_user_annotation", name, start, end, device, stream, {})

    def _add(self, category: str, name: str, start: float, end: float, pid: int, tid: int, args: object) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": start,
                "dur": end - start,
                "args": args,
            }
        )

    def write(self, path: Path, **header: object) -> Path:
        """Write the trace, compressed if the name ends in `.gz`. Return the path."""
        text = json.dumps({"schemaVersion": 1, **header, "traceEvents": self.events, "traceName": path.name}).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path
