"""WorkerLog: the output of a worker, and the description of its end."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

from kernwright.judge.protocol.messages import printable

MOST_READ = 16_000  # the message of a C++ exception precedes a page of addresses
ADDRESSES = ("frame #", "Exception raised from")


class WorkerLog:
    """An unnamed file. A named one in the worker's folder could be replaced by a link to a file of the judge."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        self._kills_for_memory = _kills_for_memory()

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def last_words(self) -> str:
        """Return the last line that is not an address of a stack trace."""
        if self._file.closed:
            return ""
        size = os.fstat(self.descriptor).st_size
        data = os.pread(self.descriptor, MOST_READ, max(0, size - MOST_READ))
        lines = [line.strip() for line in data.decode(errors="replace").splitlines()]
        said = [line for line in lines if line and not line.startswith(ADDRESSES)]
        return printable(said[-1])[:300] if said else ""

    def post_mortem(self, code: int) -> str:
        """Return how the worker ended, with its last line."""
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        if code == -signal.SIGKILL and _kills_for_memory() > self._kills_for_memory:
            how += ", the machine was out of memory"
        words = self.last_words()
        return f"crashed: {how}" + (f" ({words})" if words else "")

    def close(self) -> None:
        self._file.close()


def _kills_for_memory() -> int:
    """Return how often the kernel has killed a process for lack of memory since the machine started."""
    try:
        words = Path("/proc/vmstat").read_text().split()
    except OSError:
        return 0
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0
