"""ProcessTree: a worker and the processes that it started. None outlives the worker or runs next to it unseen."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

from kernwright.judge.process.zygote_process import ForkedProcess, zygote_pids
from kernwright.judge.system import procfs
from kernwright.judge.system.linux import PR_SET_CHILD_SUBREAPER, prctl
from kernwright.judge.system.users import end_processes_of, owners_of

TREE_DEADLINE_S = 60.0  # a fork bomb leaves the judge little processor time
_workers: set[int] = set()


def adopt_orphans() -> set[int]:
    """Make orphans of workers children of this process, and return the children that it has now.

    The setting is repeated for each worker, because a fork does not inherit it. The program that uses the judge may
    have children, which are not ours to end.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    return set(procfs.living_children(os.getpid()))


class ProcessTree:
    """The processes of one worker.

    `known` are the children that the judge had before it. `user` is the user id that only this worker has, if any.
    """

    def __init__(self, process: ForkedProcess, known: set[int], user: int | None) -> None:
        self.process, self._known, self._user = process, known, user
        _workers.add(process.pid)

    def descendants(self) -> list[int]:
        """Return living processes below the worker, and living orphans, which are children of the judge now."""
        return self.offspring() + [pid for pid in self._orphans() if procfs.is_alive(pid)]

    def offspring(self) -> list[int]:
        """Return living processes below the worker."""
        found: list[int] = []
        # After the worker was reaped, its pid may belong to another process.
        waiting = procfs.living_children(self.process.pid) if self.process.returncode is None else []
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            waiting += procfs.living_children(pid)
        return found

    def _orphans(self) -> list[int]:
        """Return children of the judge, living or not, that a worker left behind.

        If the worker has its own user, all of them have this user.
        """
        strangers = self.strangers()
        return strangers if self._user is None else [pid for pid in strangers if _belongs_to(pid, self._user)]

    def strangers(self) -> list[int]:
        """Return children of the judge that it did not start."""
        ours = self._known | _workers | zygote_pids()
        return [pid for pid in procfs.adopted(os.getpid()) if pid not in ours]

    def end(self) -> None:
        """End all processes of the tree, whether or not the worker still runs."""
        ended = self._end_together() if self._user is None else set()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._user is not None:
            end_processes_of(self._user)
        # Reap orphans: zombies count towards the limit on processes of their user.
        _reap(ended if self._user is None else self._orphans())
        _workers.discard(self.process.pid)

    def _end_together(self) -> set[int]:
        """Stop the worker and its descendants until all are stopped, then kill them together. Return their pids.

        Stopped processes count towards the limit on processes, so a fork bomb comes to an end. Two looks without a
        running process are needed, because a process may fork once more before its stop takes effect.
        """
        ended: set[int] = set()
        stopped: set[int] = set()
        deadline = time.monotonic() + TREE_DEADLINE_S
        quiet_looks = 0
        while quiet_looks < 2 and time.monotonic() < deadline:
            stopped = {*self.descendants(), *([self.process.pid] if self.process.returncode is None else [])}
            moving = [pid for pid in stopped if not procfs.stands_still(pid)]
            _signal_all(moving, signal.SIGSTOP)
            quiet_looks = 0 if moving else quiet_looks + 1
        while stopped and time.monotonic() < deadline:
            _signal_all(stopped, signal.SIGKILL)
            ended |= stopped
            if self.process.returncode is None:
                self.process.wait()
            stopped = set(self.descendants())
        return ended - {self.process.pid}


def _belongs_to(pid: int, user: int) -> bool:
    try:
        return user in owners_of(pid)
    except ProcessLookupError:
        return False


def _signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _reap(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):  # not a child of this process
            os.waitpid(pid, os.WNOHANG)
