"""Nobody of a worker's family outlives it. What real families do is tried in test_worker_process."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from kernwright.judge import procfs
from kernwright.judge.worker_family import Family


def test_a_family_is_ended_only_when_all_of_it_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is told to stop may fork once more: 11 has a child at the third look, and stands still at the fifth."""
    looks, sent = [0], []
    family = object.__new__(Family)
    family.process = SimpleNamespace(pid=10, returncode=None, wait=lambda: None)  # type: ignore[assignment]

    def descendants() -> list[int]:
        looks[0] += 1
        return [] if any(number == signal.SIGKILL for _, number in sent) else [11, 12][: 1 + (looks[0] >= 3)]

    monkeypatch.setattr(family, "descendants", descendants, raising=False)
    monkeypatch.setattr(procfs, "stands_still", lambda pid: looks[0] >= 5 or (pid == 10 and looks[0] > 1))
    ended_at: list[int] = []

    def signal_all(pids: Iterable[int], number: int) -> None:
        sent.extend((pid, number) for pid in pids)
        ended_at.extend(looks if number == signal.SIGKILL else [])

    monkeypatch.setattr("kernwright.judge.worker_family._signal_all", signal_all)
    assert family._end_together() == {11, 12}
    assert {pid for pid, number in sent if number == signal.SIGKILL} == {10, 11, 12}
    assert ended_at == [6], "two quiet looks before anybody is ended"
