"""A long run of calls: rare and late errors are found, and honest outputs are not accused of other bits."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.judge.numerics.contracts import ErrorFigures
from kernwright.judge.numerics.secret_rng import cpu_generator
from kernwright.judge.process.block import Block
from kernwright.judge.session.long_run import FEWEST_CALLS, LongRun, slots_of_long_run
from kernwright.tasks.task import load_task

TASK = load_task(Path(__file__).parents[2] / "exploits" / "mix_task")
ROW = TASK.select("mix_small")[0]
OP = TASK.op_of(ROW)
EAGER = {"y": ErrorFigures(1e-6, 1e-7, 1e-6, 1e-7)}
Outputs = dict[str, torch.Tensor]
Answer = Callable[[int, Outputs, Outputs], Outputs]  # of a call by its number, the right outputs and earlier ones


class FakeSession:
    """A session whose calls are made here; memory that a call leaves unwritten holds the outputs of an earlier one."""

    loop_takes_all_slots = False
    changed_inputs: Sequence[str] = ()

    def __init__(self, answer: Answer, slots: int) -> None:
        self.op, self.row, self.slots = OP, ROW, slots
        self.answer, self.calls = answer, 0
        self.contents: dict[int, Any] = {}
        self.memory: dict[int, Outputs] = {}  # by place in the block, as an allocator hands it out

    def begin(self, metric: str) -> None: ...
    def prepare(self) -> None: ...
    def save_image(self) -> None: ...
    def finish_writes(self) -> None: ...

    def fill(self, slot: int, contents: Any) -> None:
        self.contents[slot] = contents

    def run(self, order: Sequence[int]) -> tuple[Block, list[Outputs]]:
        left = []
        for place, slot in enumerate(order):
            self.calls += 1
            right = OP.results(self.contents[slot], OP.scalar_defaults)
            self.memory[place] = self.answer(self.calls, right, self.memory.get(place, right))
            left.append(self.memory[place])
        return Block(elapsed_ns=1, running_ns=1, processor_ns=1000, ready_ns=0, pointers=()), left


def found(answer: Answer) -> tuple[FakeSession, str | None]:
    session = FakeSession(answer, 8)
    pool = ContentPool.for_row(ROW, cpu_generator(1))
    run = LongRun(session, pool, random.Random(2), EAGER)  # type: ignore[arg-type]
    problem = next((problem for _, problem in run.blocks() if problem), None)
    return session, problem


@pytest.fixture(autouse=True)
def without_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LongRun, "_spent_s", 0.0)


def test_honest_calls_are_not_accused_where_bits_differ_from_call_to_call() -> None:
    session, problem = found(lambda call, right, _: {"y": right["y"] + (call % 2) * 1e-8})
    assert problem is None
    assert session.calls >= FEWEST_CALLS


@pytest.mark.parametrize(
    "answer",
    [
        lambda call, right, _: right if call % 1000 else {"y": torch.zeros_like(right["y"])},
        lambda call, right, _: right if call <= 5000 else {"y": torch.zeros_like(right["y"])},
        lambda call, right, earlier: right if call <= 5000 else earlier,
    ],
    ids=["every thousandth call", "late calls", "late calls that write nothing"],
)
def test_wrong_calls_are_found(answer: Answer) -> None:
    _, problem = found(answer)
    assert problem is not None


def test_a_run_has_few_slots_on_large_rows() -> None:
    assert slots_of_long_run(ROW, 24, 2**24) == 24
    assert slots_of_long_run(TASK.select("mix_large")[0], 24, 2**20) == 2
