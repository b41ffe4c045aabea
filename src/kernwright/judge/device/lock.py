"""One judge at a time per device, by a lock that the kernel releases when its holder dies.

Who times nothing shares it with others that time nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem


@contextlib.contextmanager
def device_lock(device: str, wait_s: float = 0.0, shared: bool = False) -> Iterator[None]:
    """Holds the device for the length of a judgement. All users of the machine share the lock file."""
    path = Path(os.environ.get("KERNWRIGHT_LOCKS", "/tmp")) / f"kernwright-{device.replace(':', '-')}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | (0 if path.exists() else os.O_CREAT) | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot open the lock {path}: {error}", "make it writable, or name another folder in KERNWRIGHT_LOCKS"
        ) from None
    with contextlib.suppress(PermissionError):  # another user's file: its owner has opened it to all
        os.fchmod(descriptor, 0o666)  # whatever the umask: all users share it
    try:
        _acquire(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, device, path, wait_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)  # the file stays: removing it would let two judges lock two files of one name


def _acquire(descriptor: int, kind: int, device: str, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                raise EnvironmentProblem(
                    f"another judge (process {holder}) is using {device}",
                    f"wait for it (--wait SECONDS); the lock is {path}",
                ) from None
            time.sleep(0.1)
