"""PassedOutput: a stream of a program that is passed on as it comes, and searched by the native gate."""

from __future__ import annotations

import os
import select
import time
from typing import IO

from kernwright.diagnose.program_run.native_gate import NativeGate

PIECE = 1 << 16  # bytes read at once: what a pipe holds
SILENCE_S = 0.25  # after this silence, an incomplete line is searched as it is


class PassedOutput:
    """One stream.

    Attributes:
        is_open: False after the end of the stream.
        is_read: False after the reader of Kernwright's own output has ended.
    """

    def __init__(self, source: IO[bytes], target: int, gate: NativeGate) -> None:
        self.source = source
        self.is_open = True
        self.is_read = True
        self._target = target
        self._gate = gate
        self._unsettled_since: float | None = None

    def take(self) -> str | None:
        """Pass on what the program has written. Return the line of a sign, or None. Call it when there is output."""
        piece = os.read(self.source.fileno(), PIECE)
        self.is_open = bool(piece)
        if not piece:
            return self._gate.settle()
        self._unsettled_since = time.monotonic()
        if self.is_read:
            self.is_read = write_all(self._target, piece)
        return self._gate.feed(piece)

    def settle(self) -> str | None:
        """Return the line of a sign at the end of the output, if the program has been silent since."""
        if self._unsettled_since is None or time.monotonic() - self._unsettled_since < SILENCE_S:
            return None
        self._unsettled_since = None
        return self._gate.settle()


def write_all(target: int, piece: bytes) -> bool:
    """Write bytes to a file descriptor. Return False if its reader has ended."""
    rest = memoryview(piece)
    while rest:
        try:
            rest = rest[os.write(target, rest) :]
        except BlockingIOError:  # the descriptor was made non-blocking before this process started
            select.select([], [target], [])
        except BrokenPipeError:
            return False
    return True
