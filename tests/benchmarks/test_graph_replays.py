"""Others' published times next to the judge's: which are compared, and which are reported as different."""

from __future__ import annotations

import pytest
from comparisons.graph_replays import GraphReplays, JudgedTime, Replay, graph_replays

from kernwright.baselines.lock import read_lock
from kernwright.tasks.catalog import find_task


def test_each_time_belongs_to_a_frozen_row_and_a_pinned_baseline() -> None:
    known = graph_replays().rows
    ids = {name: {row.id for row in find_task(name).rows} for name in {own.task for own in known}}
    assert all(own.row in ids[own.task] for own in known)
    assert {own.contender for own in known} <= {"eager", "compile", *read_lock().names()}
    assert len({(own.task, own.row, own.contender) for own in known}) == len(known)


def test_different_cold_times_are_named() -> None:
    rows = tuple(
        Replay(task="t", row=row, contender="eager", device_us=us)
        for row, us in (("near", 100.0), ("apart", 100.0), ("wrong", 9.0), ("small", 2.0), ("unjudged", 5.0))
    )
    judged = {
        "near": JudgedTime(104.0, 10**8),
        "apart": JudgedTime(94.2, 11 * 10**6),  # sixteen sets of its tensors exceed the cache
        "wrong": JudgedTime(18.0, 10**8),
        "small": JudgedTime(3.0, 9 * 10**6),
    }
    lines = GraphReplays(origin="by hand", gpu="a GPU", rows=rows).beside(lambda own: judged.get(own.row))
    assert "more than 10 MB" in lines[0] and "1 of 3 such times" in lines[0]
    shown = {line.split(" | ")[0].removeprefix("| "): line for line in lines[4:] if line.startswith("| ")}
    assert list(shown) == ["near", "apart", "wrong", "small"], "what has not been judged has nothing beside it"
    assert shown["near"].endswith("| 1.04x |") and shown["apart"].endswith("| **0.94x** |")
    assert shown["small"].endswith("| 1.50x |"), "the cache explains it"
    assert [line for line in lines if line.startswith("- ")] == [
        "- apart, eager: -5.8%; not explained",
        "- wrong, eager: +100.0%; not explained",
    ]
    assert GraphReplays(origin="by hand", gpu="a GPU", rows=rows).beside(lambda _: None) == []
    alike = GraphReplays(origin="by hand", gpu="a GPU", rows=rows[:1]).beside(lambda own: judged.get(own.row))
    assert alike[-1] == shown["near"], "nobody is named"


@pytest.mark.parametrize(
    ("contender", "apart", "why"),
    [
        ("eager", 0.08, "not explained"),
        ("eager", 0.12, "differed by 12.0%"),
        ("compile", 0.12, "because it chooses its kernels by measurement"),
    ],
)
def test_a_difference_is_explained_if_its_own_runs_differ_as_much(contender: str, apart: float, why: str) -> None:
    rows = (Replay(task="t", row="r", contender=contender, device_us=10.0),)
    judged = JudgedTime(11.0, 10**9, apart)
    told = GraphReplays(origin="by hand", gpu="a GPU", rows=rows).beside(lambda _: judged)[-1]
    assert told.startswith(f"- r, {contender}: +10.0%; ") and why in told
