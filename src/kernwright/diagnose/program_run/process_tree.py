"""Process tree: all descendants of this process, also those whose parent has ended; find and collect them."""

from __future__ import annotations

import ctypes
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Let descendants whose parent ends become children of this process, so that none of them is lost."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int(0)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def running_descendants(root: int, spared: frozenset[int] = frozenset()) -> list[int]:
    """Return the descendants of a process that have not ended, in sessions and process groups of any kind.

    Args:
        spared: processes that are left out, with their own descendants.
    """
    children: dict[int, list[int]] = defaultdict(list)
    ended = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        children[int(parent)].append(int(folder.name))
        if state in "ZX":
            ended.add(int(folder.name))
    found, waiting = [], [root]
    while waiting:
        below = [pid for pid in children[waiting.pop()] if pid not in spared]
        found += below
        waiting += below
    return [pid for pid in found if pid not in ended]


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap_orphans(spared: frozenset[int]) -> None:
    """Collect adopted processes that have ended.

    Args:
        spared: children that other code of this process waits for.
    """
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return  # init collects them when this process ends
    for pid in map(int, text.split()):
        if pid not in spared:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
