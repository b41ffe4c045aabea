"""SwapLog: the report of one process about its replaced functions, written to disk at once.

As in a capture, each process has a file of lines and a memory-mapped file of counters, so that a process that is killed
leaves everything that it had counted.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_SLOTS = 1024
REST = 0  # the slot of counts that have no slot of their own
_COUNTER = struct.Struct("=Q")
LINES = ".lines"
COUNTERS = ".counters"


class SwapLog:
    """Writes the report of this process. It never raises: the program must go on."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._slots: dict[tuple[str, str, str], int] = {}
        self._notes: list[str] = []
        self._kept: list[Any] = []  # mappings of parents, whose descriptors may be reused
        self._begin()
        os.register_at_fork(after_in_child=self._after_fork)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._counters: memoryview | None = None
        self._path = ""

    def _after_fork(self) -> None:
        self._kept.append(self._counters)
        self._begin()

    def note(self, said: Mapping[str, Any]) -> None:
        """Write a line. The same line is written once."""
        line = json.dumps(said, default=str)
        with self._lock:
            if line not in self._notes:
                self._notes.append(line)
                self._write(line)

    def slot(self, target: str, outcome: str, reason: str = "") -> int:
        """Return the counter of an outcome: `swapped`, `compared` or `original`."""
        key = (target, outcome, reason)
        with self._lock:
            found = self._slots.get(key)
            if found is None and len(self._slots) + 1 < MOST_SLOTS:
                found = self._slots[key] = len(self._slots) + 1
                line = json.dumps({"slot": found, "target": target, "outcome": outcome, "reason": reason})
                self._notes.append(line)
                self._write(line)
            return REST if found is None else found

    def count(self, slot: int) -> None:
        with self._lock:
            if self._counters is None and not self._open():
                return
            assert self._counters is not None
            self._counters[slot] += 1

    def _open(self) -> bool:
        """Create the files of this process, with all lines so far."""
        base = f"{self._folder}/{os.getpid()}-{os.urandom(6).hex()}"
        try:
            with open(base + COUNTERS, "x+b") as file:  # noqa: PTH123
                file.write(bytes(_COUNTER.size * MOST_SLOTS))
                file.flush()
                self._counters = memoryview(mmap.mmap(file.fileno(), _COUNTER.size * MOST_SLOTS)).cast("Q")
        except (OSError, ValueError):
            return False
        self._path = base + LINES
        self._append("".join(f"{line}\n" for line in self._notes))
        return True

    def _write(self, line: str) -> None:
        if self._path:
            self._append(f"{line}\n")
        else:
            self._open()

    def _append(self, text: str) -> None:
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)
        except OSError:
            return


def read_parts(folder: Path) -> list[tuple[list[dict[str, Any]], list[int]]]:
    """Return the lines and the counters of each process."""
    found = []
    for path in sorted(folder.glob(f"*{LINES}")):
        counters = path.with_suffix(COUNTERS).read_bytes()
        whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        found.append(([json.loads(line) for line in whole], [each for (each,) in _COUNTER.iter_unpack(counters)]))
    return found
