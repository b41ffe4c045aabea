"""Timing: what a block looks like from inside."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.judge.content_pool import ContentPool
from kernwright.judge.contract import ErrorFigures
from kernwright.judge.timing import MOST_AUDITED, RowTiming, SideFault
from kernwright.judge.worker_faults import WorkerFailed
from kernwright.tasks.task import load_task

SLOTS = 3 * MOST_AUDITED


class Watched:
    """A session that keeps what its slots hold, and falls over when they are called."""

    slots = SLOTS

    def __init__(self, row: Any) -> None:
        self.row = row
        self.held: dict[int, Any] = {}
        self.called: Sequence[int] = ()

    def fill(self, slot: int, contents: Any) -> None:
        self.held[slot] = contents

    def run(self, order: Sequence[int]) -> None:
        self.called = order
        raise WorkerFailed("seen enough")

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_an_audit_looks_like_a_timed_block_from_inside(tiny_folder: Path) -> None:
    """Every call has a content of its own: a side could tell an audit by two slots that hold the same."""
    task = load_task(tiny_folder)
    (row,) = task.select("axpy_small")
    op = task.op_of(row)
    session: Any = Watched(row)
    eager = {"y": ErrorFigures(0.0, 0.0, 1e-6, 1e-6)}
    pool = ContentPool.for_row(row, torch.Generator().manual_seed(1))
    timing = RowTiming(op, row, {"candidate": session}, pool, random.Random(1), eager, {})
    with pytest.raises(SideFault, match="seen enough"):
        timing.audit(task, "stream", "candidate")
    assert len(session.called) > MOST_AUDITED
    assert set(session.called) == set(session.held)
    for name in op.activations:
        assert len({session.held[slot][name].numpy().tobytes() for slot in session.called}) == len(session.called)
