"""SignalListener: blocked signals as events on a pipe, with the sender's kind."""

from __future__ import annotations

import os
import signal
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress

FROM_TERMINAL = 0x80  # SI_KERNEL: the terminal sent the signal to all processes of the foreground
_EVENT = struct.Struct("ii")
_POLL_S = 0.2


class SignalListener:
    """Waits in a thread for signals that the calling thread has blocked. `pipe` is readable when one has come."""

    def __init__(self, heard: Iterable[signal.Signals]) -> None:
        self._heard = set(heard)
        self.pipe, self._writer = os.pipe()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def take(self) -> Iterator[tuple[int, bool]]:
        """Yield signals, and whether the terminal sent them. Call it when `pipe` is readable."""
        with suppress(BlockingIOError):
            yield from (
                (number, code == FROM_TERMINAL) for number, code in _EVENT.iter_unpack(os.read(self.pipe, 4096))
            )

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        os.close(self.pipe)
        os.close(self._writer)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            heard = signal.sigtimedwait(self._heard, _POLL_S)
            if heard is not None:
                os.write(self._writer, _EVENT.pack(heard.si_signo, heard.si_code))
