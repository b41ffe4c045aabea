"""Concealment of the judge: its memory and its command line are closed to workers of the same user."""

from __future__ import annotations

import ctypes

from kernwright.judge.system.linux import PR_SET_DUMPABLE, prctl


def hide_judge() -> str:
    """Closes the judge's own memory to processes of the same user, and takes the seed out of its command line."""
    try:
        prctl(PR_SET_DUMPABLE, 0)
        said = "not dumpable, command line blanked"
    except OSError:
        said = "dumpable"
    _blank_command_line()
    return said


def _blank_command_line() -> None:
    """A worker could read the seed from /proc/<judge>/cmdline; the kernel serves that from our own stack."""
    with open("/proc/self/stat", encoding="ascii") as stat:  # noqa: PTH123 - read before the process turns non-dumpable
        fields = stat.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)
