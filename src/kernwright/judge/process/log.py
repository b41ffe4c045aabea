"""WorkerLog: the output of a worker, and the description of its end."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from kernwright.judge.protocol.messages import printable

MOST_READ = 16_000  # the message of a C++ exception precedes a page of addresses
MOST_SHOWN = 4_000  # bytes of the beginning and of the end of a long output
ADDRESSES = ("frame #", "Exception raised from")


class WorkerLog:
    """An unnamed file. A named one in the worker's folder could be replaced by a link to a file of the judge."""

    def __init__(self, reader: Callable[[str], None] | None = None) -> None:
        """Make the file. `reader` gets everything that was printed, once, when the log is closed."""
        self._reader = reader
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

    def text(self) -> str:
        """Return everything that was printed; of a long output the beginning and the end."""
        size = os.fstat(self.descriptor).st_size
        if size <= 2 * MOST_SHOWN:
            return os.pread(self.descriptor, size, 0).decode(errors="replace")
        parts = (os.pread(self.descriptor, MOST_SHOWN, place) for place in (0, size - MOST_SHOWN))
        return f"\n[{size - 2 * MOST_SHOWN} bytes left out]\n".join(part.decode(errors="replace") for part in parts)

    def close(self) -> None:
        if self._reader is not None and not self._file.closed:
            self._reader(self.text())
        self._file.close()


def _kills_for_memory() -> int:
    """Return how often the kernel has killed a process for lack of memory since the machine started."""
    try:
        words = Path("/proc/vmstat").read_text().split()
    except OSError:
        return 0
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0
