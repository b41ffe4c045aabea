"""Watchdog: kills processes that do not stop in time."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

STOP_DEADLINE_S = 10.0


class Watchdog:
    """Kill process groups that exceed a deadline. A thread in vfork(2), for example, cannot be stopped at all."""

    def __init__(self) -> None:
        self._deadlines: dict[int, float] = {}
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def guarding(self, pid: int) -> Iterator[None]:
        """Kill the process group if the block takes longer than the deadline."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="kernwright-watchdog", daemon=True)
            self._thread.start()
        self._deadlines[pid] = time.monotonic() + STOP_DEADLINE_S
        try:
            yield
        finally:
            self._deadlines.pop(pid, None)

    def _watch(self) -> None:
        while True:
            time.sleep(1.0)
            now = time.monotonic()
            for pid, deadline in list(self._deadlines.items()):
                if now > deadline:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)


watchdog = Watchdog()
