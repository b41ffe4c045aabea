"""Concealment of the judge from workers of the same user: its memory and its command line."""

from __future__ import annotations

import ctypes

from kernwright.judge.system.linux import PR_SET_DUMPABLE, prctl


def hide_judge() -> str:
    """Close the memory of this process to its user, and blank its command line, which may hold the seed.

    Return a description for the record.
    """
    try:
        prctl(PR_SET_DUMPABLE, 0)
        said = "not dumpable, command line blanked"
    except OSError:
        said = "dumpable"
    _blank_command_line()
    return said


def _blank_command_line() -> None:
    """Blank the command line. The kernel serves /proc/<pid>/cmdline from the stack of the process."""
    with open("/proc/self/stat", encoding="ascii") as stat:  # noqa: PTH123 - read before the process turns non-dumpable
        fields = stat.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)
