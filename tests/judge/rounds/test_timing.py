"""Timing: how a block looks from inside a worker."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from kernwright.judge.contest.faults import SideFault, WrongOutput
from kernwright.judge.contest.pair import Pair
from kernwright.judge.numerics.cases import distributions_of
from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.judge.numerics.contracts import ErrorFigures
from kernwright.judge.numerics.inputs import DISTRIBUTIONS
from kernwright.judge.process.block import Block
from kernwright.judge.process.faults import WorkerFailed
from kernwright.judge.rounds.timing import MOST_MOVES, WANDERING, RowTiming
from kernwright.judge.session.session import OutputsMoved
from kernwright.tasks.task import load_task

MOST_REDONE = 3  # repeats of a half
SLOTS = 3 * len(DISTRIBUTIONS)


class Watched:
    """A session that records what its slots hold, and fails when they are called."""

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
    """Every call has its own content. Otherwise a side could recognise an audit by two slots with the same content."""
    task = load_task(tiny_folder)
    (row,) = task.select("axpy_small")
    op = task.op_of(row)
    session: Any = Watched(row)
    eager = {"y": ErrorFigures(0.0, 0.0, 1e-6, 1e-6)}
    pool = ContentPool.for_row(row, torch.Generator().manual_seed(1))
    timing = RowTiming(
        op=op, row=row, sessions={"candidate": session}, pool=pool, rng=random.Random(1), eager=eager, tolerances={}
    )
    with pytest.raises(SideFault, match="seen enough"):
        timing.audit(task, "stream", "candidate")
    assert len(session.called) > len(DISTRIBUTIONS)
    assert set(session.called) == set(session.held)
    for name in op.activations:
        assert len({session.held[slot][name].numpy().tobytes() for slot in session.called}) == len(session.called)


@pytest.mark.parametrize("calls", [3, SLOTS])
def test_each_kind_of_inputs_comes_once_in_an_audit(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    task = load_task(tiny_folder)
    (row,) = task.select("axpy_small")
    op = task.op_of(row)
    session: Any = Watched(row)
    session.slots = calls
    pool = ContentPool.for_row(row, torch.Generator().manual_seed(1))
    drawn: list[str] = []
    monkeypatch.setattr(pool, "draw", lambda op, row, kind: drawn.append(kind) or {})
    monkeypatch.setattr(pool, "contents", lambda *_: MagicMock())
    timing = RowTiming(
        op=op, row=row, sessions={"candidate": session}, pool=pool, rng=random.Random(1), eager={}, tolerances={}
    )
    for _ in range(8):  # a random choice would repeat one somewhere
        with pytest.raises(SideFault, match="seen enough"):
            timing.audit(task, "stream", "candidate")
        assert len(drawn) == len(set(drawn)) == min(len(session.called), len(distributions_of(op)))
        drawn.clear()


class ByItself(Watched):
    """A session whose single calls leave the given results."""

    wall_calls = 2 * len(DISTRIBUTIONS)
    outputs_may_move = False

    def run_single_calls(self, contents: Any, slots: Sequence[int]) -> Any:
        for number, slot in enumerate(slots):
            contents.place(self, [slot], number)
            yield number, Block(elapsed_ns=1, running_ns=1, processor_ns=0, ready_ns=0, pointers=()), [self.held[slot]]

    def outputs_of(self, left: Any, call: int) -> Any:
        return left[call]

    def __getattr__(self, name: str) -> Any:
        return MagicMock()


@pytest.mark.parametrize("trusted", [False, True])
def test_a_call_by_itself_is_audited_with_every_kind_of_inputs(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    task = load_task(tiny_folder)
    (row,) = task.select("axpy_small")
    op = task.op_of(row)
    pool = ContentPool.for_row(row, torch.Generator().manual_seed(1))
    seen: list[tuple[str, str]] = []

    def problems(task: Any, case: Any, inputs: Any, outputs: Any, pool: Any, standard: str) -> list[str]:
        assert outputs is inputs, "each call is held against its own contents"
        seen.append((case.distribution, standard))
        return ["y is odd"] if case.distribution == "offset" and wrong else []

    monkeypatch.setattr("kernwright.judge.rounds.audit_contents.case_problems", problems)
    session: Any = ByItself(row)
    own: Any = frozenset({"candidate"} if trusted else ())
    timing = RowTiming(
        op=op,
        row=row,
        sessions={"candidate": session},
        pool=pool,
        rng=random.Random(1),
        eager={},
        tolerances={},
        trusted=own,
    )
    wrong = False
    for _ in range(12):
        timing.audit_alone(task, "candidate")
    kinds = {kind for kind, _ in seen}
    assert kinds == set(distributions_of(op)) - ({"strong", "outlier"} if trusted else set())
    assert {standard for _, standard in seen} == {"tolerance" if trusted else op.contract}
    wrong = True
    with pytest.raises(SideFault, match="in a call by itself: y is odd"):
        for _ in range(12):
            timing.audit_alone(task, "candidate")


CALLS = 10


class Mover:
    """A session whose blocks put outputs elsewhere than before, as often as it is told, and take the given times."""

    slots = CALLS
    loop_takes_all_slots = outputs_may_move = tells_events = protocol_drifts = False

    def __init__(self, moves: int, took_us: Sequence[int] = (), right_elsewhere: bool = True) -> None:
        self.moves, self.right_elsewhere = moves, right_elsewhere
        self.took_us = list(took_us)

    def run(self, order: Sequence[int], *, with_python: bool = True) -> tuple[Block, Any]:
        ns = 1000 * len(order) * (self.took_us.pop(0) if self.took_us else 100)
        is_right = self.right_elsewhere or not self.moves
        block, left = (
            Block(elapsed_ns=ns, running_ns=ns, processor_ns=0, ready_ns=0, pointers=()),
            SimpleNamespace(calls=len(order), right=is_right),
        )
        if self.moves:
            self.moves -= 1
            raise OutputsMoved(block, left)
        return block, left

    def run_empty_blocks(self, repeats: int) -> list[Block]:
        return [Block(elapsed_ns=0, running_ns=0, processor_ns=0, ready_ns=0, pointers=())] * repeats

    def __getattr__(self, name: str) -> Any:
        return MagicMock()


class Checked:
    """Contents that can tell right from wrong outputs."""

    def place(self, *_: Any) -> None: ...

    def problem(self, left: Any, first: int = 0, tolerances: Any = None) -> str | None:
        return None if left.right else "y is wrong"


def timing_of(tiny_folder: Path, **sessions: Any) -> RowTiming:
    task = load_task(tiny_folder)
    (row,) = task.select("axpy_small")
    pool: Any = SimpleNamespace(contents=lambda *_: Checked())
    timing = RowTiming(
        op=task.op_of(row),
        row=row,
        sessions=sessions,
        pool=pool,
        rng=random.Random(1),
        eager={},
        tolerances={},
        trusted=frozenset({"baseline", "again"}),
    )
    timing.begin("stream", list(sessions))
    return timing


def test_moving_outputs_does_not_discard_a_slow_block(tiny_folder: Path) -> None:
    """Otherwise a side that knows how a block went could choose whether the block counts."""
    sides = {"baseline": Mover(0), "again": Mover(0), "candidate": Mover(2, took_us=[300, 200, 80, 70])}
    quad = timing_of(tiny_folder, **sides).quad("stream", 0)
    first, second = quad.ns_per_call["candidate"]
    assert (first, second) == pytest.approx((300_000, 70_000)), "the slowest of three tries, then one that counts"
    assert quad.moved == {"candidate": 2}
    assert quad.of(Pair().roles).moved == 2


def test_a_trusted_side_has_its_last_try(tiny_folder: Path) -> None:
    sides = {"baseline": Mover(1, took_us=[300, 80, 80]), "again": Mover(0), "candidate": Mover(0)}
    quad = timing_of(tiny_folder, **sides).quad("stream", 0)
    assert quad.ns_per_call["baseline"][0] == pytest.approx(80_000)


def test_a_block_that_does_not_count_must_be_right_too(tiny_folder: Path) -> None:
    sides = {"baseline": Mover(0), "again": Mover(0), "candidate": Mover(1, right_elsewhere=False)}
    with pytest.raises(SideFault, match="y is wrong") as fault:
        timing_of(tiny_folder, **sides).quad("stream", 0)
    assert fault.value.side == "candidate" and isinstance(fault.value.cause, WrongOutput)


def test_each_side_may_move_its_outputs_so_often_and_no_more(tiny_folder: Path) -> None:
    timing = timing_of(tiny_folder, baseline=Mover(8), again=Mover(8), candidate=Mover(MOST_MOVES))
    timing.quad("stream", 0)
    timing.sessions["candidate"].moves = 1  # type: ignore[attr-defined]
    with pytest.raises(SideFault, match=WANDERING) as fault:
        timing.quad("stream", 0)
    assert fault.value.side == "candidate"
    timing.sessions["candidate"].moves = 1  # type: ignore[attr-defined]
    timing.begin("stream", list(timing.sessions))
    timing.quad("stream", 1)


def test_an_audit_counts_wherever_outputs_lie(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a second try a side would recognise the audit and behave."""
    sides = {"baseline": Mover(0), "again": Mover(0), "candidate": Mover(1)}
    timing = timing_of(tiny_folder, **sides)
    timing.pool.draw = lambda *_: {}  # type: ignore[attr-defined]
    monkeypatch.setattr("kernwright.judge.rounds.timing.case_problems", lambda *_: ["y is odd"])
    with pytest.raises(SideFault, match="in a run of calls: y is odd"):
        timing.audit(load_task(tiny_folder), "stream", "candidate")


class Drifting(Mover):
    """A session with events and a protocol that takes longer than at first."""

    tells_events = True
    wall_calls = 3

    def __init__(self, call_us: int) -> None:
        super().__init__(0)
        self.call_us, self.around_ns, self.asked = call_us, 400_000, 0

    def run(self, order: Sequence[int], *, with_python: bool = True) -> tuple[Block, Any]:
        self.calls = len(order)
        ns = 1000 * self.calls * self.call_us + self.around_ns
        return Block(elapsed_ns=ns, running_ns=ns, processor_ns=0, ready_ns=0, pointers=()), SimpleNamespace(
            calls=self.calls, right=True
        )

    def run_empty_blocks(self, repeats: int) -> list[Block]:
        return [
            Block(elapsed_ns=self.around_ns, running_ns=self.around_ns, processor_ns=0, ready_ns=0, pointers=())
        ] * repeats

    def event_ns(self) -> int:
        self.asked += 1
        return 1000 * self.calls * self.call_us


def test_trusted_sides_show_the_present_time_of_the_protocol(tiny_folder: Path) -> None:
    sides = {"baseline": Drifting(200), "again": Drifting(200), "candidate": Drifting(100)}
    timing = timing_of(tiny_folder, **sides)
    for side in sides.values():
        side.around_ns += 150_000
    quad = timing.quad("stream", 0)
    assert quad.ns_per_call["candidate"] == pytest.approx((100_000, 100_000))
    assert quad.ns_per_call["baseline"] == pytest.approx((200_000, 200_000))
    assert sides["candidate"].asked == 0, "what a candidate says of itself counts for nothing"


def test_calls_by_themselves_have_no_events(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = {"baseline": Drifting(200), "again": Drifting(200), "candidate": Drifting(100)}
    timing = timing_of(tiny_folder, **sides)
    asked = sides["baseline"].asked

    def one_by_one(session: Drifting, contents: Any, slots: Sequence[int], *_: Any) -> Block:
        return Block.joined([session.run([slot])[0] for slot in slots])

    monkeypatch.setattr(timing, "_one_by_one", one_by_one)
    timing.begin("wall", list(sides))
    assert timing.quad("wall", 0).ns_per_call["candidate"] == pytest.approx((100_000, 100_000))
    assert sides["baseline"].asked == asked


def test_a_side_without_readable_events_has_failed(tiny_folder: Path) -> None:
    sides = {"baseline": Drifting(200), "again": Drifting(200), "candidate": Drifting(100)}
    timing = timing_of(tiny_folder, **sides)
    sides["baseline"].event_ns = lambda: (_ for _ in ()).throw(WorkerFailed("is gone"))  # type: ignore[method-assign]
    with pytest.raises(SideFault, match="is gone") as fault:
        timing.quad("stream", 0)
    assert fault.value.side == "baseline"


def change_blocks(session: Mover, change: Callable[[int, Block, Any], Block]) -> None:
    """Pass each of a session's blocks, with its number, through a function of the test."""
    run, numbers = session.run, itertools.count(1)

    def changed(order: Sequence[int], *, with_python: bool = True) -> tuple[Block, Any]:
        block, left = run(order, with_python=with_python)
        return change(next(numbers), block, left), left

    session.run = changed  # type: ignore[method-assign]


def test_outputs_that_move_between_the_halves_change_no_time(tiny_folder: Path) -> None:
    """More must be read back from then on, of every side. The earlier half does not have this cost."""
    sides = {"baseline": Drifting(200), "again": Drifting(200), "candidate": Drifting(100)}
    timing = timing_of(tiny_folder, **sides)

    def moves_once(number: int, block: Block, left: Any) -> Block:
        if number == 2:  # the first block of the second half
            for side in sides.values():
                side.around_ns += 150_000
            raise OutputsMoved(block, left)
        return block

    change_blocks(sides["candidate"], moves_once)
    quad = timing.quad("stream", 0)
    assert quad.moved == {"candidate": 1}
    assert quad.ns_per_call["candidate"] == pytest.approx((100_000, 100_000))
    assert quad.ns_per_call["baseline"] == pytest.approx((200_000, 200_000))


def test_a_half_that_was_run_again_is_counted(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernwright.judge.rounds.timing.MOST_REDONE", MOST_REDONE)  # none is repeated beside others
    sides = {"baseline": Mover(0), "again": Mover(0), "candidate": Mover(0)}
    timing = timing_of(tiny_folder, **sides)

    def waits_once(number: int, block: Block, left: Any) -> Block:
        return replace(block, ready_ns=block.elapsed_ns) if number == 1 else block

    change_blocks(sides["candidate"], waits_once)
    assert timing.quad("stream", 0).redone == 1
