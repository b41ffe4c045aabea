"""One row in one worker: every rule of a call, broken once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernwright.judge.process.answers import accept_answer
from kernwright.judge.process.faults import WorkerCheated, WorkerFailed
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.protocol.messages import AnswerT, Done, Load, Request
from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.session.retained_outputs import RetainedOutputs
from kernwright.judge.session.session import Session, WrongBehaviour, bytes_per_slot, same_bytes
from kernwright.tasks.task import Task, load_task

BEHAVIOURS = """
import torch


def right(x, w, *, alpha=2.0):
    return alpha * x + w


def right_into(x, w, *, alpha=2.0, out):
    torch.add(w, x, alpha=alpha, out=out)


def as_tuple(x, w, *, alpha=2.0):
    return (right(x, w, alpha=alpha),)


def alias(x, w, *, alpha=2.0):
    right(x, w, alpha=alpha)
    return x


kept = []


def same_twice(x, w, *, alpha=2.0):
    kept.append(right(x, w, alpha=alpha))
    kept[0].copy_(kept[-1])
    return kept[0]


def ring(x, w, *, alpha=2.0):
    kept.append(kept[-5] if len(kept) >= 5 else torch.empty_like(x))
    return torch.add(w, x, alpha=alpha, out=kept[-1])


def scribbles(x, w, *, alpha=2.0):
    kept.append(right(x, w, alpha=alpha))
    if len(kept) > 5:
        kept[-6].zero_()
    return kept[-1]


def unheld(x, w, *, alpha=2.0):
    import sys
    free = [number for number in range(len(kept)) if sys.getrefcount(kept[number]) == 2]
    if not free:
        kept.append(torch.empty_like(x))
    return torch.add(w, x, alpha=alpha, out=kept[free[0] if free else -1])


def overlapping(x, w, *, alpha=2.0):
    if not kept:
        kept.append(torch.empty(x.numel() * 40))
    start = 8 * len(kept)
    kept.append(kept[0][start : start + x.numel()].view(x.shape))
    return kept[-1]


def changes_input(x, w, *, alpha=2.0):
    y = right(x, w, alpha=alpha)
    x[0, 0] += 1
    return y


def changes_nan(x, w, *, alpha=2.0):
    y = right(x, w, alpha=alpha)
    x.view(torch.int32)[0, 0] ^= 1
    return y


def one_short(x, w, *, alpha=2.0):
    return right(x, w, alpha=alpha).flatten()[:-1]


def other_shape(x, w, *, alpha=2.0):
    return right(x, w, alpha=alpha).T.contiguous()


def other_dtype(x, w, *, alpha=2.0):
    return right(x, w, alpha=alpha).double()


def other_strides(x, w, *, alpha=2.0):
    return right(x, w, alpha=alpha).T.contiguous().T


def nothing(x, w, *, alpha=2.0):
    return None


def two(x, w, *, alpha=2.0):
    return right(x, w, alpha=alpha), right(x, w, alpha=alpha)


class Lazy(torch.Tensor):
    pass


def subclass(x, w, *, alpha=2.0):
    return right(x, w, alpha=alpha).as_subclass(Lazy)


def parameter(x, w, *, alpha=2.0):
    return torch.nn.Parameter(right(x, w, alpha=alpha))


def past_the_end(x, w, *, alpha=2.0, out):
    right_into(x, w, alpha=alpha, out=out)
    torch.as_strided(out, (1,), (1,), out.storage_offset() + out.numel()).fill_(0)


def before_the_start(x, w, *, alpha=2.0, out):
    right_into(x, w, alpha=alpha, out=out)
    torch.as_strided(out, (1,), (1,), out.storage_offset() - 1).fill_(0)


def early(x, w, *, alpha=2.0, out):
    '''Writes the other slots too, before anyone asks.'''
    import sys
    slots = sys._getframe(1).f_back.f_locals["self"].slots
    for other_x, other_w, other_out in slots:
        torch.add(other_w, other_x, alpha=alpha, out=other_out)


def wrong_signature(x, *, beta):
    return x


def accumulate(state, x):
    state += x
    return state.clone(), state * 2


def forgets_state(state, x):
    return state + x, (state + x) * 2


def before_the_state(state, x):
    torch.as_strided(state, (1,), (1,), state.storage_offset() - 1).fill_(0)
    return accumulate(state, x)


def touches_other_state(state, x):
    import sys
    for other in sys._getframe(1).f_back.f_locals["self"].slots:
        other[0].zero_()
    return accumulate(state, x)


not_callable = 3
"""


class Bench:
    """A worker that loads one behaviour after another."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task, self.folder = task, folder
        folder.chmod(0o755)  # the worker may run as another user
        (folder / "kernel.py").write_text(BEHAVIOURS)
        self.worker: WorkerProcess | None = None
        self.opened: list[Session] = []

    def open(self, function: str, style: Any = "returns", slots: int = 2, op: str = "axpy", offset: int = 0) -> Session:
        if self.worker is None or self.worker.process.poll() is not None:
            self.worker = WorkerProcess(
                label="candidate",
                scratch=self.folder / "scratch",
                threads=1,
                processor=max(os.sched_getaffinity(0)),
                reads=[self.folder],
            )
            self.worker.wait_ready()
        side = SideOrders(
            kind="candidate",
            language="python",
            folder=str(self.folder),
            file="kernel.py",
            function=function,
            style=style,
            op=op,
        )
        self.worker.request(Load(side=side), Done, 60.0)
        (row,) = self.task.select("axpy_small" if op == "axpy" else op)
        row = row.model_copy(
            update={"inputs": {n: t.model_copy(update={"offset": offset}) for n, t in row.inputs.items()}}
        )
        session = Session(self.worker, self.task.ops[op], row, style, slots)
        self.opened.append(session)
        for slot in range(slots):
            session.fill(slot, self.content(op, slot))
        return session

    @staticmethod
    def content(op: str, slot: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(slot)
        other = torch.randn(64, generator=generator) if op == "axpy" else torch.randn(6, 64, generator=generator)
        return {"x": torch.randn(6, 64, generator=generator), ("w" if op == "axpy" else "state"): other}


@pytest.fixture(scope="module")
def bench(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(load_task(tiny_folder), tmp_path_factory.mktemp("session"))
    yield bench
    if bench.worker is not None:
        bench.worker.kill()
    for session in bench.opened:
        session.close()


def right(slot: int) -> torch.Tensor:
    content = Bench.content("axpy", slot)
    return 2.0 * content["x"] + content["w"]


@pytest.mark.parametrize("function", ["right", "as_tuple"])
def test_returned_outputs_are_read_out_of_the_stopped_worker(bench: Bench, function: str) -> None:
    session = bench.open(function)
    assert torch.equal(session.check_call(1, 30.0)["y"], right(1))
    block = session.worker.run_block([1, 0], 1, 30.0)
    first, second = session.snapshot([1, 0], block.pointers)
    session.refuse_damage([1, 0])
    assert torch.equal(first["y"], right(1))
    assert torch.equal(second["y"], right(0))


def test_written_outputs_are_read_out_of_the_arena(bench: Bench) -> None:
    session = bench.open("right_into", "writes")
    torch.testing.assert_close(session.check_call(0, 30.0)["y"], right(0))
    session.prepare()
    session.fill(1, Bench.content("axpy", 1))
    assert session.arena.is_poisoned(0, "y")
    torch.testing.assert_close(session.check_call(1, 30.0)["y"], right(1))


def test_a_side_that_writes_can_be_called_as_one_that_returns(bench: Bench) -> None:
    """The timed loop is used here, which allocates the outputs inside the call."""
    session = bench.open("right_into", "writes")
    (row,) = bench.task.select("axpy_small")
    assert bench.worker is not None
    returning = Session(bench.worker, bench.task.ops["axpy"], row, "returns", 2)
    bench.opened.append(returning)
    returning.fill(0, Bench.content("axpy", 0))
    torch.testing.assert_close(returning.check_call(0, 30.0)["y"], right(0))
    assert bytes_per_slot(row, "writes") > bytes_per_slot(row, "returns")
    assert session.slots == 2


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("alias", "an output aliases an input"),
        ("changes_input", "changed its input x"),
    ],
)
def test_a_call_that_breaks_a_rule(bench: Bench, function: str, said: str) -> None:
    session = bench.open(function)
    with pytest.raises(WrongBehaviour, match=said):
        session.check_call(0, 30.0)


def test_one_bit_of_a_nan_input_counts(bench: Bench) -> None:
    session = bench.open("changes_nan")
    content = Bench.content("axpy", 0)
    content["x"][0, 0] = float("nan")
    session.fill(0, content)
    with pytest.raises(WrongBehaviour, match="changed its input x"):
        session.check_call(0, 30.0)


@pytest.mark.parametrize("function", ["same_twice", "overlapping"])
def test_two_calls_have_two_outputs(bench: Bench, function: str) -> None:
    session = bench.open(function)
    block = session.worker.run_block([0, 1], 1, 30.0)
    with pytest.raises(WrongBehaviour, match="two calls returned the same memory"):
        session.snapshot([0, 1], block.pointers)


def run_blocks(session: Session) -> None:
    for _ in range(8):
        session.prepare()
        for slot in range(session.slots):
            session.fill(slot, Bench.content("axpy", slot))
        _, left = session.run([1, 0])
        assert torch.allclose(left[1]["y"], right(0)), "right as long as a block lasts"
    session.end_retention()


@pytest.mark.parametrize(("function", "said"), [("ring", "returned"), ("scribbles", "overwrote")])
def test_an_output_stays_intact_while_its_caller_holds_it(bench: Bench, function: str, said: str) -> None:
    with pytest.raises(WrongBehaviour, match=f"{said} .*still holds"):
        run_blocks(bench.open(function))


def test_held_outputs_of_a_trusted_side_are_not_copied_but_must_stay_intact(bench: Bench) -> None:
    session = bench.open("scribbles")
    session.compares_retained = False
    run_blocks(session)
    session = bench.open("ring")
    session.compares_retained = False
    with pytest.raises(WrongBehaviour, match="still holds"):
        run_blocks(session)


@pytest.mark.parametrize("function", ["right", "unheld"])
def test_released_memory_may_be_reused(bench: Bench, function: str) -> None:
    run_blocks(bench.open(function))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("one_short", r"output 0 is torch.float32 \[383\]"),
        ("other_shape", r"\[64, 6\].*the row asks for torch.float32 \[6, 64\]"),
        ("other_dtype", "torch.float64"),
        ("other_strides", "strides"),
        ("nothing", "returned NoneType"),
        ("two", "returned 2 outputs"),
        ("subclass", "output 0 is a Lazy, not a plain torch.Tensor"),
        ("parameter", "output 0 is a Parameter"),
    ],
)
def test_a_call_must_return_the_outputs_of_the_row(bench: Bench, function: str, said: str) -> None:
    session = bench.open(function)
    with pytest.raises(WorkerFailed, match=said) as caught:
        session.check_call(0, 30.0)
    assert caught.value.kind == "OutputProblem"


@pytest.mark.parametrize("function", ["past_the_end", "before_the_start"])
def test_a_write_outside_the_output_breaks_a_canary(bench: Bench, function: str) -> None:
    session = bench.open(function, "writes")
    with pytest.raises(WrongBehaviour, match="wrote outside its outputs"):
        session.check_call(0, 30.0)


def test_an_unexpected_output_is_tampering(bench: Bench) -> None:
    session = bench.open("early", "writes")
    with pytest.raises(WorkerCheated, match="wrote the output"):
        session.check_call(0, 30.0)


@pytest.mark.parametrize(
    ("function", "said"),
    [("wrong_signature", "it is called as"), ("absent", "has no function 'absent'"), ("not_callable", "no function")],
)
def test_a_side_that_cannot_be_called_says_how_it_should_be(bench: Bench, function: str, said: str) -> None:
    with pytest.raises(WorkerFailed, match=said) as caught:
        bench.open(function)
    assert caught.value.kind == "SideProblem"


# In place


def test_an_op_that_works_in_place(bench: Bench) -> None:
    session = bench.open("accumulate", op="accumulate")
    content = Bench.content("accumulate", 0)
    outputs = session.check_call(0, 30.0)
    assert torch.equal(outputs["state"], content["state"] + content["x"])
    assert torch.equal(outputs["total"], content["state"] + content["x"])
    session.prepare()
    session.fill(0, content)
    assert torch.equal(session.check_call(0, 30.0)["state"], outputs["state"]), "restored before each call"


def test_a_value_left_in_place_is_a_result(bench: Bench) -> None:
    session = bench.open("forgets_state", op="accumulate")
    content = Bench.content("accumulate", 0)
    outputs = session.check_call(0, 30.0)
    assert torch.equal(outputs["total"], content["state"] + content["x"])
    assert torch.equal(outputs["state"], content["state"]), "the judge sees that nothing was accumulated"


def test_inputs_begin_off_an_aligned_address_where_the_row_says_so(bench: Bench) -> None:
    session = bench.open("accumulate", op="accumulate", offset=3)
    assert {session.arena.tensor(slot, "state").data_ptr() % 256 for slot in range(2)} == {12}
    content = Bench.content("accumulate", 1)
    assert torch.equal(session.check_call(1, 30.0)["state"], content["state"] + content["x"])
    session = bench.open("before_the_state", op="accumulate", offset=3)
    with pytest.raises(WrongBehaviour, match="wrote outside its outputs"):
        session.check_call(0, 30.0)


def test_a_call_must_not_change_the_state_of_another_slot(bench: Bench) -> None:
    session = bench.open("touches_other_state", op="accumulate")
    with pytest.raises(WrongBehaviour, match="changed its input state"):
        session.check_call(0, 30.0)


def test_the_worker_survived_all_of_these(bench: Bench, request: pytest.FixtureRequest) -> None:
    session: Callable[..., Any] = bench.open
    assert torch.equal(session("right").check_call(0, 30.0)["y"], right(0))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64])
def test_the_last_bit_of_the_last_byte_counts(dtype: torch.dtype) -> None:
    content = torch.full((3, 5), float("nan")).to(dtype)
    held = content.clone()
    assert same_bytes(held, content) and same_bytes(held.t(), content.t())
    held.view(torch.uint8)[-1, -1] ^= 1
    assert not same_bytes(held, content) and not same_bytes(held.t(), content.t())
    assert not same_bytes(held[:2], content)


class Named:
    """A worker whose mappings have names of its own choosing."""

    def mappings(self) -> str:
        odd = "8000-8010 r--p 0 /tmp/a\x0bkernwright-arena"
        return f"7f00-7f10 rw-p 00:01 1 /memfd:kernwright-arena\n{odd}\nkernwright-arena\n"


def test_a_mapping_with_an_odd_name_hides_no_other() -> None:
    session = Session.__new__(Session)
    session.worker = SimpleNamespace(memory=Named())  # type: ignore[assignment]
    assert session._arena_mappings() == [(0x7F00, 0x7F10), (0x8000, 0x8010)]


class Talker:
    """A worker that sends any text."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer

    def request(self, message: Request, kind: type[AnswerT], *_: object) -> AnswerT:
        return accept_answer(kind, self.answer)


def test_text_of_a_worker_is_safe_for_a_terminal_and_a_record() -> None:
    session = Session.__new__(Session)
    session._retained = RetainedOutputs(0, ())
    foul = "\ud800\x1b[2Jfaster"
    session.worker = Talker(unavailable=foul)  # type: ignore[assignment]
    assert session.open_loop() == "??[2Jfaster"
    session.worker = Talker(kernels=[{"name": foul, "stream": 7, "count": 1}])  # type: ignore[assignment]
    assert [kernel.name for kernel in session.census()] == ["??[2Jfaster"]
    for kernels in (None, [None], [{"stream": 7}], "abc"):
        session.worker = Talker(kernels=kernels)  # type: ignore[assignment]
        with pytest.raises(WorkerCheated):
            session.census()
