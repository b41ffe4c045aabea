"""CpuKeepalive: keeps the workers' processor from idling while they are stopped.

A processor that has been idle for a millisecond takes longer to wake up than many calls take, and the time varies, most
of all under a hypervisor. So a process of the judge spins there whenever no worker runs. It stops spinning before a
worker is resumed, because preemption by the kernel would take longer.
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
libc.prctl(1, 9)  # PR_SET_PDEATHSIG: end with the judge
libc.prctl(4, 0)  # PR_SET_DUMPABLE: closed to other processes, like the judge
if os.getppid() != judge:
    sys.exit()
os.sched_setaffinity(0, {processor})
spin = mmap.mmap(flag, mmap.PAGESIZE)
while os.read(0, 4096):
    while spin[0]:
        pass
"""


class CpuKeepalive:
    """The keep-alive process of one processor. The kernel ends it when the judge ends."""

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
            os.set_blocking(self._bell, False)  # a full pipe must not block the judge
        finally:
            os.close(descriptor)

    @property
    def pid(self) -> int:
        return self._process.pid

    def goes_on(self, worker: int) -> None:
        """Stop spinning. Call this before the worker is resumed."""
        self._spin[0] = 0
        self._moving.add(worker)

    def stands_still(self, worker: int) -> None:
        """Spin again if no worker runs any more. Call this when the worker was stopped or has ended."""
        self._moving.discard(worker)
        if self._moving:
            return
        self._spin[0] = 1
        with contextlib.suppress(OSError):  # the process is gone, and the processor may idle
            os.write(self._bell, b".")

    def end(self) -> None:
        self._spin[0] = 0
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
