"""No process of a worker's tree outlives it. test_worker_process.py tests real process trees."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from kernwright.judge.process.process_tree import ProcessTree, adopt_orphans
from kernwright.judge.system import procfs


def test_a_family_is_ended_only_when_all_of_it_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may fork before it is stopped: 11 has a child at the third look, and stands still at the fifth."""
    looks, sent = [0], []
    tree = object.__new__(ProcessTree)
    tree.process = SimpleNamespace(pid=10, returncode=None, wait=lambda: None)  # type: ignore[assignment]

    def descendants() -> list[int]:
        looks[0] += 1
        return [] if any(number == signal.SIGKILL for _, number in sent) else [11, 12][: 1 + (looks[0] >= 3)]

    monkeypatch.setattr(tree, "descendants", descendants, raising=False)
    monkeypatch.setattr(procfs, "stands_still", lambda pid: looks[0] >= 5 or (pid == 10 and looks[0] > 1))
    ended_at: list[int] = []

    def signal_all(pids: Iterable[int], number: int) -> None:
        sent.extend((pid, number) for pid in pids)
        ended_at.extend(looks if number == signal.SIGKILL else [])

    monkeypatch.setattr("kernwright.judge.process.process_tree._signal_all", signal_all)
    assert tree._end_together() == {11, 12}
    assert {pid for pid, number in sent if number == signal.SIGKILL} == {10, 11, 12}
    assert ended_at == [6], "two quiet looks before anybody is ended"


def test_an_orphan_is_seen_whichever_thread_it_comes_from() -> None:
    """The kernel gives orphans to the first thread of the adopting process, so only that thread is read."""
    tree = ProcessTree(SimpleNamespace(pid=0, returncode=0), adopt_orphans(), None)  # type: ignore[arg-type]
    before = {*tree.strangers()}
    reading, writing = os.pipe()

    def leave_an_orphan() -> None:
        between = os.fork()
        if between == 0:
            if os.fork() == 0:
                os.close(writing)
                os.read(reading, 1)  # waits until the test has looked
                os._exit(0)
            os._exit(0)
        os.waitpid(between, 0)

    thread = threading.Thread(target=leave_an_orphan)
    thread.start()
    thread.join()
    orphans = {*tree.strangers()} - before
    os.close(writing)
    for orphan in orphans:
        os.waitpid(orphan, 0)
    assert len(orphans) == 1
