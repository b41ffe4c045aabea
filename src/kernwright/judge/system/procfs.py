"""Process information from /proc. It is read directly, because the judge reads it before and after every block."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path


def read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - several for every block
        return file.read()


def threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process, zombies included."""
    found: list[int] = []
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            found += [int(child) for child in read(f"/proc/{pid}/task/{thread}/children").split()]
    return found


def adopted(pid: int) -> list[int]:
    """Return the children of the first thread of a process, zombies included.

    All orphans below a process that adopts them become children of its first thread, as do their siblings. So the other
    threads, of which a judge has dozens, need not be read after every block.
    """
    try:
        return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]
    except OSError:
        return []


def states(pid: int) -> set[bytes]:
    """Return the states of all threads: the first may have ended while others run and the process looks dead."""
    found = set()
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            found.add(read(f"/proc/{pid}/task/{thread}/stat").rpartition(b")")[2].split()[0])
    return found


def is_alive(pid: int) -> bool:
    return not states(pid) <= {b"Z", b"X"}


def stands_still(pid: int) -> bool:
    """Return whether a process is stopped, gone or blocked in the kernel."""
    return states(pid) <= {b"T", b"t", b"D", b"Z", b"X"}


def living_children(pid: int) -> list[int]:
    """Return whether a process lives. A zombie does not."""
    return [child for child in children(pid) if is_alive(child)]


def scheduled_ns(pid: int) -> tuple[int, int]:
    """Return how long the first thread ran, and how long it was ready but had no processor."""
    try:
        ran, ready = read(f"/proc/{pid}/task/{pid}/schedstat").split()[:2]
    except OSError:
        return 0, 0
    return int(ran), int(ready)


def available_memory() -> int:
    """Return the host memory in bytes that is available without swapping."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found.group(1)) * 1024 if found else 0
