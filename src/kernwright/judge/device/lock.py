"""Device lock: one judge at a time per device. The operating system releases the lock when its holder dies.

Judges that do not time anything may share the lock.
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
    """Hold the lock of a device inside the context. All users of the machine share the lock file."""
    path = Path(os.environ.get("KERNWRIGHT_LOCKS", "/tmp")) / f"kernwright-{device.replace(':', '-')}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | (0 if path.exists() else os.O_CREAT) | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot open the lock {path}: {error}", "make it writable, or name another folder in KERNWRIGHT_LOCKS"
        ) from None
    with contextlib.suppress(PermissionError):  # raised for another user's file, which its owner has made writable
        os.fchmod(descriptor, 0o666)  # all users share the file, whatever the umask
    try:
        _acquire(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, device, path, wait_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)  # the file is not removed, since two judges could then lock different files of this name


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
