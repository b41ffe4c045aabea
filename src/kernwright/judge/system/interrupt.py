"""Interrupt: a request to stop that cannot get lost.

Python raises KeyboardInterrupt wherever it happens to be. In a destructor or in a callback from C it is printed and
dropped, and a judgement would go on for minutes. So the request is also stored and checked between quads. It works in a
program that a shell started in the background, too, where Python would ignore it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupt:
    """Stores whether a stop was requested."""

    def __init__(self) -> None:
        self.asked = False

    def heed(self) -> None:
        if self.asked:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def listening(self) -> Iterator[Interrupt]:
        """Store requests while the context lasts. Only the main thread of a program receives any."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)
