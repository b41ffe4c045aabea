"""WorkerLog: what a worker prints, and what its end says of it."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

from kernwright.judge.protocol.messages import printable

MOST_READ = 16_000  # where C++ ends in an exception, its words come before a page of addresses
ADDRESSES = ("frame #", "Exception raised from")


class WorkerLog:
    """A file without a name: in the worker's own folder it could be made a link to a file of the judge's."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        self._kills_for_memory = _kills_for_memory()

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def last_words(self) -> str:
        """The last line that says something."""
        if self._file.closed:
            return ""
        size = os.fstat(self.descriptor).st_size
        data = os.pread(self.descriptor, MOST_READ, max(0, size - MOST_READ))
        lines = [line.strip() for line in data.decode(errors="replace").splitlines()]
        said = [line for line in lines if line and not line.startswith(ADDRESSES)]
        return printable(said[-1])[:300] if said else ""

    def post_mortem(self, code: int) -> str:
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        if code == -signal.SIGKILL and _kills_for_memory() > self._kills_for_memory:
            how += ", the machine was out of memory"
        words = self.last_words()
        return f"crashed: {how}" + (f" ({words})" if words else "")

    def close(self) -> None:
        self._file.close()


def _kills_for_memory() -> int:
    """How often the kernel has killed a process because memory ran out, since the machine started."""
    try:
        words = Path("/proc/vmstat").read_text().split()
    except OSError:
        return 0
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0
