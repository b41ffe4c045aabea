"""What a worker gives up before it loads a line of foreign code. It answers what was possible, for the provenance."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
CLONE_NEWNET, CLONE_NEWIPC = 0x40000000, 0x08000000
MOST_FILE_BYTES = 2 * 2**30
MOST_DESCRIPTORS = 1024
MEMORY_SHARE = 0.7

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Isolation:
    """The walls in force around a worker; what is missing is said too."""

    dies_with_judge: bool
    no_new_privileges: bool
    network: str
    processors: str
    limits: str
    user: str
    file_system: str = "shared with the judge"

    def as_message(self) -> dict[str, object]:
        return asdict(self)


def die_with(parent: int) -> bool:
    """First thing in a worker: whatever ends the judge ends its workers, stopped or not."""
    asked: bool = _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0
    if os.getppid() != parent:  # the judge died before the request took hold
        os._exit(1)
    return asked


def confine(dies: bool, processor: int | None) -> Isolation:
    """Last thing before foreign code: every line that has run so far is the judge's own."""
    privileges = _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    network = "none" if _libc.unshare(CLONE_NEWNET | CLONE_NEWIPC) == 0 else "shared (no right to unshare)"
    processors = "any" if processor is None else _pin(processor)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, the worker goes, not the judge
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_DESCRIPTORS, MOST_DESCRIPTORS))
    return Isolation(
        dies_with_judge=dies,
        no_new_privileges=privileges,
        network=network,
        processors=processors,
        limits=f"{memory >> 30} GiB of memory, files of {MOST_FILE_BYTES >> 30} GiB, no core dumps",
        user=f"uid {os.getuid()}, as the judge",
    )


def _pin(processor: int) -> str:
    """Every thread there is; threads to come inherit it. Libraries start some while they are imported."""
    try:
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), {processor})
    except OSError as error:
        return f"any (pinning failed: {error.strerror})"
    return f"pinned to {processor}"


def hide_judge() -> str:
    """Closes the judge's own memory to processes of the same user, and takes the seed out of its command line."""
    hidden = _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    _blank_command_line()
    return "not dumpable, command line blanked" if hidden else "dumpable"


def _blank_command_line() -> None:
    """A worker could read the seed from /proc/<judge>/cmdline; the kernel serves that from our own stack."""
    with open("/proc/self/stat", encoding="ascii") as stat:  # noqa: PTH123 - read before the process turns non-dumpable
        fields = stat.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)
