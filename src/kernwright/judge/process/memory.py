"""WorkerMemory: the memory of a stopped worker, read by the judge."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from torch import Tensor

from kernwright.judge.process.faults import WorkerFailed
from kernwright.judge.process.watchdog import watchdog

_libc = ctypes.CDLL(None, use_errno=True)


class MemorySpan(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class WorkerMemory:
    """The memory of one worker.

    `windows` are descriptors of /proc/self/mem and /proc/self/maps that the worker opened before foreign code ran.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.windows: list[int] = []

    def read(self, address: int, into: Tensor) -> None:
        """Copy memory of the stopped worker into a contiguous tensor of the judge.

        The watchdog sets a deadline: page faults that the stopped worker would have to serve (userfaultfd) never end.
        """
        size = into.numel() * into.element_size()
        local = MemorySpan(into.data_ptr(), size)
        remote = MemorySpan(address, size)
        _libc.process_vm_readv.restype = ctypes.c_ssize_t
        with watchdog.guarding(self.pid):
            got = _libc.process_vm_readv(self.pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if got < 0 and ctypes.get_errno() == errno.EPERM and self.windows:
            got = self._read_through_window(address, local)
        if got != size:
            reason = os.strerror(ctypes.get_errno()) if got < 0 else f"{got} of {size} bytes"
            raise WorkerFailed(f"an output at {address:#x} cannot be read: {reason}")

    def _read_through_window(self, address: int, local: MemorySpan) -> int:
        """Read through the worker's descriptor, for a judge without the right to read another user's process.

        This is slower, because the kernel copies twice.
        """
        target = memoryview((ctypes.c_char * local.length).from_address(local.base)).cast("B")
        done = 0
        while done < local.length:
            try:
                count = os.preadv(self.windows[0], [target[done:]], address + done)
            except OSError as error:
                ctypes.set_errno(error.errno or errno.EIO)
                return -1
            if count == 0:
                break
            done += count
        return done

    def mappings(self) -> str:
        """Return the kernel's list of the worker's memory mappings."""
        try:
            return Path(f"/proc/{self.pid}/maps").read_text(errors="replace")
        except PermissionError:
            if not self.windows:
                raise
            with open(os.dup(self.windows[1]), encoding="utf-8", errors="replace") as maps:  # noqa: PTH123
                maps.seek(0)
                return maps.read()

    def close(self) -> None:
        while self.windows:
            os.close(self.windows.pop())
