"""CpuKeepalive: keeps the workers' processor from idling while they are stopped.

A processor that has been idle for a millisecond takes longer to come back than many a call takes, and less evenly, most
of all where a hypervisor has lent it to somebody else meanwhile. So something of the judge's runs there whenever no
worker does. It leaves before a worker goes on, rather than to be driven out by it: the kernel takes its time over that.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys

_SPIN = """
import ctypes, mmap, os, sys
processor, flag, judge = (int(word) for word in sys.argv[1:])
libc = ctypes.CDLL(None)
libc.prctl(1, 9)  # ends with the judge
libc.prctl(4, 0)  # and is as closed to other processes as the judge is
if os.getppid() != judge:
    sys.exit()
os.sched_setaffinity(0, {processor})
spin = mmap.mmap(flag, mmap.PAGESIZE)
while os.read(0, 4096):
    while spin[0]:
        pass
"""


class CpuKeepalive:
    """One processor's. It ends with the judge, whatever becomes of that."""

    def __init__(self, processor: int) -> None:
        self.processor = processor
        self._moving: set[int] = set()
        descriptor = os.memfd_create("kernwright-keepalive")
        try:
            os.ftruncate(descriptor, mmap.PAGESIZE)
            self._spin = mmap.mmap(descriptor, mmap.PAGESIZE)
            words = [sys.executable, "-I", "-S", "-c", _SPIN, str(processor), str(descriptor), str(os.getpid())]
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={},
                start_new_session=True, pass_fds=(descriptor,), bufsize=0,
            )  # fmt: skip
            assert self._process.stdin is not None
            self._bell = self._process.stdin.fileno()
            os.set_blocking(self._bell, False)  # nobody may keep the judge waiting by not listening
        finally:
            os.close(descriptor)

    @property
    def pid(self) -> int:
        return self._process.pid

    def goes_on(self, worker: int) -> None:
        """To be called before the worker does."""
        self._spin[0] = 0
        self._moving.add(worker)

    def stands_still(self, worker: int) -> None:
        """Or has ended."""
        self._moving.discard(worker)
        if self._moving:
            return
        self._spin[0] = 1
        with contextlib.suppress(OSError):  # it is gone: then the processor sleeps
            os.write(self._bell, b".")

    def end(self) -> None:
        self._spin[0] = 0
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
