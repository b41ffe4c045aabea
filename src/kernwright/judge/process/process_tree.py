"""Family: a worker and all that it started. Nobody of it outlives the worker, nor works beside it unseen."""

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

FAMILY_DEADLINE_S = 60.0  # a fork bomb leaves its judge little of the processor
_workers: set[int] = set()


def adopt_orphans() -> set[int]:
    """A worker's orphans become ours: they cannot hide from us. Asked for each time, since no fork inherits it. Answers
    the children that there are now: whoever uses the judge may have some of their own."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    return set(procfs.living_children(os.getpid()))


class ProcessTree:
    """One worker's. `known` are the judge's children from before it; `user` is its own, where it has one."""

    def __init__(self, process: ForkedProcess, known: set[int], user: int | None) -> None:
        self.process, self._known, self._user = process, known, user
        _workers.add(process.pid)

    def descendants(self) -> list[int]:
        """Living processes that the worker started, and orphans of a worker: those are the judge's children now."""
        return self.offspring() + [pid for pid in self._orphans() if procfs.is_alive(pid)]

    def offspring(self) -> list[int]:
        """Living processes below the worker."""
        found: list[int] = []
        # Once it is buried, its number may be another's.
        waiting = procfs.living_children(self.process.pid) if self.process.returncode is None else []
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            waiting += procfs.living_children(pid)
        return found

    def _orphans(self) -> list[int]:
        """Children of the judge, living or not, that a worker left behind: of this one's user, where it has its own."""
        strangers = self.strangers()
        return strangers if self._user is None else [pid for pid in strangers if _belongs_to(pid, self._user)]

    def strangers(self) -> list[int]:
        """Children of the judge that it never asked for."""
        ours = self._known | _workers | zygote_pids()
        return [pid for pid in procfs.adopted(os.getpid()) if pid not in ours]

    def end(self) -> None:
        """Ends all of it, whether or not the worker is still there itself."""
        ended = self._end_together() if self._user is None else set()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._user is not None:
            end_processes_of(self._user)
        # Orphans are ours to bury; unburied, they count towards their user's limit on processes.
        _bury(ended if self._user is None else self._orphans())
        _workers.discard(self.process.pid)

    def _end_together(self) -> set[int]:
        """Stops the worker and its descendants until all of them stand still, then ends them together. Those that stand
        still count towards the limit on processes, so that a fork bomb comes to an end. One look is not enough: who was
        told to stop may fork once more before it does."""
        ended: set[int] = set()
        stopped: set[int] = set()
        deadline = time.monotonic() + FAMILY_DEADLINE_S
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


def _bury(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):  # a child of somebody else's
            os.waitpid(pid, os.WNOHANG)
