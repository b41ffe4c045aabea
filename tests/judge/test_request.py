"""The judge keeps off the workers' processor where it can, and gives everything back."""

from __future__ import annotations

import os

import pytest

from kernwright.judge.request import apart_from


@pytest.fixture
def affinity(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """A machine with eight processors; what this thread was set to, in order."""
    seen: list[set[int]] = [set(range(8))]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: seen[-1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, wanted: seen.append(set(wanted)))
    return seen


def test_it_keeps_off_the_workers_processor_and_comes_back(affinity: list[set[int]]) -> None:
    with pytest.raises(KeyboardInterrupt), apart_from(7):
        assert affinity[-1] == set(range(7))
        raise KeyboardInterrupt
    assert affinity[-1] == set(range(8))


@pytest.mark.parametrize(("processors", "processor"), [(2, 1), (4, 3), (8, None)])
def test_where_processors_are_few_or_workers_are_not_pinned_it_stays(
    affinity: list[set[int]], processors: int, processor: int | None
) -> None:
    affinity[-1] = set(range(processors))
    with apart_from(processor):
        pass
    assert len(affinity) == 1


def test_a_sandbox_that_refuses_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []

    def refuse(_: int, wanted: set[int]) -> None:
        asked.append(set(wanted))
        raise PermissionError("not here")

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with apart_from(7):
        assert asked == [set(range(7))]
    assert asked[-1] == set(range(8)), "it tries to come back even so"
