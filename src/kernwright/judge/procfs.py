"""What the kernel tells of processes in /proc. Read by hand: the judge asks before and after every block."""

from __future__ import annotations

import contextlib
import os


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


def is_alive(pid: int) -> bool:
    try:
        return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def stands_still(pid: int) -> bool:
    """Stopped, gone, or held by the kernel: it does nothing by itself now."""
    try:
        return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] in (b"T", b"t", b"D", b"Z", b"X")
    except OSError:
        return True


def living_children(pid: int) -> list[int]:
    """The dead are no help to anyone."""
    return [child for child in children(pid) if is_alive(child)]


def run_delay_ns(pid: int) -> int:
    """Time that the process's first thread was ready to run and had no processor."""
    try:
        return int(read(f"/proc/{pid}/task/{pid}/schedstat").split()[1])
    except OSError:
        return 0
