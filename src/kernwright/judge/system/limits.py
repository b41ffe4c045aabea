"""Limits on the memory, disk, descriptors and processes of a worker."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

MOST_FILE_BYTES = 2 * 2**30
MOST_DESCRIPTORS = 1024
MOST_PROCESSES = 256  # threads included
MEMORY_SHARE = 0.7


def limit_resources() -> str:
    """Limit resources, and return a description for the record.

    Memory is limited per process. If the machine runs out of memory, the kernel kills workers first.
    """
    memory = int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_DATA, memory)
    _lower(resource.RLIMIT_FSIZE, MOST_FILE_BYTES)
    _lower(resource.RLIMIT_NOFILE, MOST_DESCRIPTORS)
    goes_first = ""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # the kernel kills the worker before the judge
        goes_first = ", first to go when memory runs out"
    return (
        f"{memory >> 30} GiB of memory a process, files of {MOST_FILE_BYTES >> 30} GiB, "
        f"{MOST_DESCRIPTORS} descriptors, no core dumps{goes_first}"
    )


def limit_processes(beyond: int = 0) -> None:
    """Limit processes and threads.

    The kernel counts per user; `beyond` is the number that the user has besides the worker.
    """
    _lower(resource.RLIMIT_NPROC, MOST_PROCESSES + beyond)


def threads_of(user: int) -> int:
    """Return the number of processes and threads of a user."""
    count = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == user:
                    count += len(list((folder / "task").iterdir()))
    return count


def _lower(which: int, most: int) -> None:
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))
