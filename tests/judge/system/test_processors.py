"""The judge avoids the workers' core if it can, and restores its affinity afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernwright.judge.system.processors import apart_from, processors_near, processors_of_core

NOWHERE = Path("/nonexistent")  # a machine that does not report which processors share a core


@pytest.fixture
def affinity(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """A machine with eight processors, and the list of affinities that this thread was given."""
    seen: list[set[int]] = [set(range(8))]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: seen[-1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, wanted: seen.append(set(wanted)))
    return seen


def test_the_judge_avoids_the_workers_processor_and_comes_back(affinity: list[set[int]]) -> None:
    with pytest.raises(KeyboardInterrupt), apart_from(7, NOWHERE):
        assert affinity[-1] == set(range(7))
        raise KeyboardInterrupt
    assert affinity[-1] == set(range(8))


@pytest.mark.parametrize(("processors", "processor"), [(2, 1), (4, 3), (8, None)])
def test_the_judge_stays_if_processors_are_few_or_workers_not_pinned(
    affinity: list[set[int]], processors: int, processor: int | None
) -> None:
    affinity[-1] = set(range(processors))
    with apart_from(processor, NOWHERE):
        pass
    assert len(affinity) == 1


def test_a_sandbox_that_refuses_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []

    def refuse(_: int, wanted: set[int]) -> None:
        asked.append(set(wanted))
        raise PermissionError("not here")

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with apart_from(7, NOWHERE):
        assert asked == [set(range(7))]
    assert asked[-1] == set(range(8)), "it tries to come back even so"


def test_the_judge_avoids_the_workers_core(affinity: list[set[int]], tmp_path: Path) -> None:
    (tmp_path / "cpu7" / "topology").mkdir(parents=True)
    (tmp_path / "cpu7" / "topology" / "thread_siblings_list").write_text("3,7\n")
    with apart_from(7, tmp_path):
        assert affinity[-1] == {0, 1, 2, 4, 5, 6}
    assert affinity[-1] == set(range(8))
    (tmp_path / "cpu7" / "topology" / "thread_siblings_list").write_text("1-7\n")
    with apart_from(7, tmp_path):
        assert affinity[-1] == set(range(7)), "one core for nearly all: it must stay somewhere"


def test_a_core_is_what_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "cpu5" / "topology").mkdir(parents=True)
    (tmp_path / "cpu5" / "topology" / "thread_siblings_list").write_text("4-5\n")
    assert processors_of_core(5, tmp_path) == {4, 5}
    assert processors_of_core(6, tmp_path) == {6}
    (tmp_path / "cpu5" / "topology" / "thread_siblings_list").write_text("what?\n")
    assert processors_of_core(5, tmp_path) == {5}


def test_near_are_the_usable_processors_that_share_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 2, 5, 8, 9})
    (tmp_path / "cpu5" / "node1").mkdir(parents=True)
    (tmp_path / "cpu5" / "node1" / "cpulist").write_text("4-7,9\n")
    assert processors_near(5, tmp_path) == {5, 9}
    assert processors_near(8, tmp_path) == {1, 2, 5, 8, 9}, "this machine does not say"
