"""A long run of calls: rare and late errors are found, and honest outputs with varying bits are not accused."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.judge.numerics.contracts import ErrorFigures
from kernwright.judge.numerics.secret_rng import cpu_generator
from kernwright.judge.process.block import Block
from kernwright.judge.process.faults import WorkerFailed
from kernwright.judge.session import long_run
from kernwright.judge.session.long_run import (
    ENOUGH_CALLS,
    FEWEST_CALLS,
    MOST_EXCESS_S,
    MOST_S,
    LongRun,
    slots_of_long_run,
)
from kernwright.tasks.task import load_task

TASK = load_task(Path(__file__).parents[2] / "exploits" / "mix_task")
ROW = TASK.select("mix_small")[0]
OP = TASK.op_of(ROW)
EAGER = {"y": ErrorFigures(1e-6, 1e-7, 1e-6, 1e-7)}
TIMED_CALL_S = 1e-5
Outputs = dict[str, torch.Tensor]
# Returns the answer of a call, given its number, the right outputs and earlier ones.
Answer = Callable[[int, Outputs, Outputs], Outputs]


@dataclass
class Clock:
    """A clock that advances only during calls."""

    call_s: Callable[[int], float] = lambda call: TIMED_CALL_S
    sleeps: bool = False  # if true, calls take no processor time
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return 0.0


class FakeSession:
    """A session whose calls are functions of the test. Memory that a call leaves unwritten holds the outputs of an
    earlier call."""

    loop_takes_all_slots = False
    changed_inputs: Sequence[str] = ()

    def __init__(self, answer: Answer, slots: int, clock: Clock) -> None:
        self.op, self.row, self.slots = OP, ROW, slots
        self.answer, self.calls, self.clock = answer, 0, clock
        self.contents: dict[int, Any] = {}
        self.memory: dict[int, Outputs] = {}  # outputs by their place in the block, as an allocator would reuse memory

    def begin(self, metric: str) -> None: ...
    def prepare(self) -> None: ...
    def save_image(self) -> None: ...
    def finish_writes(self) -> None: ...

    def fill(self, slot: int, contents: Any) -> None:
        self.contents[slot] = contents

    def run(self, order: Sequence[int]) -> tuple[Block, list[Outputs]]:
        left = []
        before = self.clock.now
        for place, slot in enumerate(order):
            self.calls += 1
            self.clock.now += self.clock.call_s(self.calls)
            right = OP.results(self.contents[slot], OP.scalar_defaults)
            self.memory[place] = self.answer(self.calls, right, self.memory.get(place, right))
            left.append(self.memory[place])
        ns = round(1e9 * (self.clock.now - before))
        processor_ns = 0 if self.clock.sleeps else ns
        return Block(elapsed_ns=ns, running_ns=ns, processor_ns=processor_ns, ready_ns=0, pointers=()), left


def found(
    answer: Answer, clock: Clock | None = None, timed_call_s: float = TIMED_CALL_S
) -> tuple[FakeSession, str | None]:
    clock = clock or Clock()
    session = FakeSession(answer, 8, clock)
    pool = ContentPool.for_row(ROW, cpu_generator(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_run, "time", clock)
        run = LongRun(session, pool, random.Random(2), EAGER, timed_call_s)  # type: ignore[arg-type]
        problem = next((problem for _, problem in run.blocks() if problem), None)
    return session, problem


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


def honest(call: int, right: Outputs, earlier: Outputs) -> Outputs:
    return right


@pytest.mark.parametrize("sleeps", [False, True])
@pytest.mark.parametrize(
    "call_s",
    [lambda call: 1.3 if call == 2000 else TIMED_CALL_S, lambda call: TIMED_CALL_S if call < 500 else 2e-3],
    ids=["one slow call", "slow calls"],
)
def test_a_side_cannot_end_its_own_run(call_s: Callable[[int], float], sleeps: bool) -> None:
    """The side is right and fast while it is timed, then slow, and wrong from call 2,400 on."""

    def answer(call: int, right: Outputs, _: Outputs) -> Outputs:
        return right if call <= 2400 else {"y": torch.zeros_like(right["y"])}

    session, problem = found(answer, Clock(call_s, sleeps))
    assert problem is not None and session.calls <= ENOUGH_CALLS + long_run.MOST_BLOCK_CALLS


def test_a_side_that_spends_many_seconds_fails() -> None:
    clock = Clock(lambda call: TIMED_CALL_S if call < 500 else 0.01)
    with pytest.raises(WorkerFailed):
        found(honest, clock)
    assert MOST_EXCESS_S < clock.now < 2 * MOST_EXCESS_S


@pytest.mark.parametrize("slower", [1.0, 5.0])
def test_a_run_of_slow_calls_ends_in_time(slower: float) -> None:
    """This also holds if every call takes longer than in timed blocks, for example because caches are colder."""
    clock = Clock(lambda call: 0.005 * slower)
    session, problem = found(honest, clock, timed_call_s=0.005)
    assert problem is None and MOST_S < clock.now < 3 * MOST_S and session.calls < ENOUGH_CALLS


def test_a_run_has_few_slots_on_large_rows() -> None:
    assert slots_of_long_run(ROW, 24, 2**24) == 24
    assert slots_of_long_run(TASK.select("mix_large")[0], 24, 2**20) == 2
