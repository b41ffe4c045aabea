"""What the kernel tells of processes in /proc. Read by hand: the judge asks before and after every block."""

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
    """Of all its threads, the unburied included."""
    found: list[int] = []
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            found += [int(child) for child in read(f"/proc/{pid}/task/{thread}/children").split()]
    return found


def adopted(pid: int) -> list[int]:
    """Children of its first thread, the unburied included. To it fall all orphans below a process that adopts them, and
    whoever was made a sibling of one of these; so there is no need to look at the other threads, of which a judge has
    dozens and which are asked for after every block."""
    try:
        return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]
    except OSError:
        return []


def states(pid: int) -> set[bytes]:
    """Of all its threads: the first one may have ended, and others run on, while the process as such shows as dead."""
    found = set()
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            found.add(read(f"/proc/{pid}/task/{thread}/stat").rpartition(b")")[2].split()[0])
    return found


def is_alive(pid: int) -> bool:
    return not states(pid) <= {b"Z", b"X"}


def stands_still(pid: int) -> bool:
    """Stopped, gone, or held by the kernel: it does nothing by itself now."""
    return states(pid) <= {b"T", b"t", b"D", b"Z", b"X"}


def living_children(pid: int) -> list[int]:
    """The dead are no help to anyone."""
    return [child for child in children(pid) if is_alive(child)]


def scheduled_ns(pid: int) -> tuple[int, int]:
    """Time that the process's first thread ran, and that it was ready to run and had no processor."""
    try:
        ran, ready = read(f"/proc/{pid}/task/{pid}/schedstat").split()[:2]
    except OSError:
        return 0, 0
    return int(ran), int(ready)


def available_memory() -> int:
    """Host memory that can be had without pushing anyone else out, in bytes."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found.group(1)) * 1024 if found else 0
