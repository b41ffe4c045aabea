"""Blocks of calls inside a worker, by the native loop and the Python loop. They differ only in speed."""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.judge.device import block_loop_build
from kernwright.judge.device.block_loop_build import build_block_loop
from kernwright.judge.process.faults import WorkerCheated, WorkerFailed
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.protocol.channel import Channel
from kernwright.judge.protocol.frames import RUN, WITH_PYTHON
from kernwright.judge.protocol.messages import Done, Load
from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.record.verdict import GOOD
from kernwright.judge.request import JudgeRequest, judge
from kernwright.judge.session.session import Session
from kernwright.judge.worker.block_loop import BlockLoop, RaisedWhileWaiting
from kernwright.tasks.task import Task, load_task

KERNELS = """
import signal
import sys
import torch

calls = 0
ticks = 0


def honest(x, w, *, alpha):
    return alpha * x + w


def several(x, w, *, alpha):
    return [alpha * x + w]


def raises_in_the_third(x, w, *, alpha):
    global calls
    calls += 1
    if calls % 3 == 0:
        raise ValueError("the third call")
    return alpha * x + w


def no_tensor(x, w, *, alpha):
    return [alpha * x + w, "text"]


def no_tensor_in_a_block(x, w, *, alpha):
    global calls
    calls += 1
    return alpha * x + w if calls == 1 else 7


def says_who_calls(x, w, *, alpha):
    return torch.full_like(x, float(sys._getframe(2).f_code.co_name == "serve"))


def handles_signals(x, w, *, alpha):
    global calls
    calls += 1
    if calls == 1:
        def handle(*_):
            global ticks
            ticks += 1

        signal.signal(signal.SIGCONT, handle)
    return torch.full_like(x, float(ticks))
"""


class Desk:
    """A worker with one kind of loop, and the tiny row."""

    def __init__(self, task: Task, folder: Path, native: bool) -> None:
        self.task, self.native = task, native
        folder.chmod(0o755)
        (folder / "kernel.py").write_text(KERNELS)
        (self.row,) = task.select("axpy_small")
        self.folder = folder
        loop = build_block_loop(folder / "loop") if native else None
        assert (loop is not None) == native
        self.worker = WorkerProcess(
            label="candidate",
            scratch=folder / "scratch",
            threads=1,
            processor=max(os.sched_getaffinity(0)),
            reads=[folder],
            block_loop=loop,
        )
        self.worker.wait_ready()

    def open(self, function: str, slots: int = 6) -> Session:
        side = SideOrders(
            kind="candidate",
            language="python",
            folder=str(self.folder),
            file="kernel.py",
            function=function,
            style="returns",
            op="axpy",
        )
        self.worker.request(Load(side=side), Done, 60.0)
        session = Session(self.worker, self.task.ops["axpy"], self.row, "returns", slots)
        for slot in range(slots):
            session.fill(slot, {"x": torch.full((6, 64), float(slot)), "w": torch.zeros(64)})
        return session


@pytest.fixture(params=[True, False], ids=["native", "python"])
def desk(request: pytest.FixtureRequest, tiny_folder: Path, tmp_path: Path) -> Iterator[Desk]:
    found = Desk(load_task(tiny_folder), tmp_path, request.param)
    yield found
    found.worker.kill()


@pytest.mark.parametrize("function", ["honest", "several"])
def test_a_block_runs_the_slots_that_it_is_asked_for(desk: Desk, function: str) -> None:
    session = desk.open(function)
    for order in ([3], [5, 0, 2, 4], [], [1], [0, 1, 2, 3, 4, 5]):
        session.prepare()
        block, left = session.run(order)
        assert len(block.pointers) == len(set(block.pointers)) == len(order)
        found = [session.outputs_of(left, call)["y"][0, 0].item() for call in range(len(order))]
        assert found == [2.0 * slot for slot in order]


def test_the_loop_is_the_one_that_was_asked_for(desk: Desk) -> None:
    session = desk.open("says_who_calls")
    for order in ([0], [1, 2]):
        session.prepare()
        _, left = session.run(order)
        assert session.outputs_of(left, 0)["y"][0, 0].item() == float(desk.native)


def test_calls_by_themselves_leave_each_its_output(desk: Desk) -> None:
    """No other request comes between the calls."""
    session = desk.open("honest")
    session.prepare()
    pointers = [session.run([slot])[0].pointers for slot in (4, 2, 4)]
    assert len({pointer for (pointer,) in pointers}) == 3


def test_an_empty_block_takes_the_same_path_as_a_full_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overhead that is subtracted from a block is measured with such a block."""
    session = desk.open("honest")
    ways = []
    run = session.run
    monkeypatch.setattr(session, "run", lambda order, **way: (ways.append(way["with_python"]), run(order, **way))[1])
    for metric in ("wall", "stream", "device"):
        session.begin(metric)  # type: ignore[arg-type]
        session.run_empty_blocks(1)
    assert ways == [True, True, False]


def test_an_exception_of_a_call_is_reported_and_the_worker_goes_on(desk: Desk) -> None:
    session = desk.open("raises_in_the_third")
    session.prepare()
    session.run([0, 1])
    with pytest.raises(WorkerFailed, match="the third call") as failed:
        session.run([2, 3])
    assert failed.value.kind == "ValueError"
    assert len(desk.open("honest").run([0, 1])[0].pointers) == 2


@pytest.mark.parametrize("function", ["no_tensor", "no_tensor_in_a_block"])
def test_a_call_that_returns_no_tensor_is_reported(desk: Desk, function: str) -> None:
    session = desk.open(function)
    session.prepare()
    with pytest.raises(WorkerFailed, match=r"not a plain torch\.Tensor") as failed:
        session.run([0, 1])
    assert failed.value.kind == "OutputProblem"


def test_a_slot_that_is_not_there_is_an_error(desk: Desk) -> None:
    session = desk.open("honest", slots=2)
    session.prepare()
    with pytest.raises(WorkerFailed, match="IndexError"):
        desk.worker.run_block([0, 2], 1, 30.0)


def test_a_signals_handler_runs_and_the_loop_goes_on(desk: Desk) -> None:
    session = desk.open("handles_signals")
    session.prepare()
    for _ in range(3):
        _, left = session.run([0])
    assert session.outputs_of(left, 0)["y"][0, 0].item() > 0


def test_a_worker_ends_with_the_judges_end_of_the_pipe(desk: Desk) -> None:
    desk.open("honest").run([0])
    desk.worker._resume()
    desk.worker.channel.connection.close()
    assert desk.worker.process.wait(60.0) == 0


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[BlockLoop, Channel]]:
    """Return a loop in this process and the judge's end of its pipe."""
    ours, theirs = socket.socketpair()
    library = build_block_loop(tmp_path)
    assert library is not None
    with ours, theirs:
        yield BlockLoop(str(library), theirs.fileno()), Channel(ours)


def ask(channel: Channel, *order: int) -> None:
    channel.send(RUN, struct.pack(f"<{len(order) + 1}H", WITH_PYTHON, *order))


def drain(loop: BlockLoop) -> None:
    """Receive the frame that ended the loop."""
    with socket.socket(fileno=os.dup(loop._descriptor)) as end:
        end.recv(1 << 14)


def test_nothing_is_held_longer_than_it_is_kept(pipe: tuple[BlockLoop, Channel]) -> None:
    loop, channel = pipe
    slots, kept = [[torch.ones(1)], (torch.ones(1), torch.ones(1))], []  # type: ignore[var-annotated]
    before = [sys.getrefcount(slot) for slot in slots]
    for _ in range(100):
        ask(channel, 0, 1, 1)
        channel.send_json({})
        assert loop.serve(lambda slot: slot, slots, kept, True)
        assert len(kept) == 3
        kept.clear()
        assert len(channel.receive(1.0)[1]) == 8 * 5
        drain(loop)
    assert [sys.getrefcount(slot) for slot in slots] == before


def test_others_run_while_it_waits(pipe: tuple[BlockLoop, Channel]) -> None:
    """The loop releases the GIL while it waits: another thread sends the frame."""
    loop, channel = pipe

    def give_up(*_: object) -> None:
        raise TimeoutError("nobody could send anything")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 20.0)
    sender = threading.Timer(0.05, lambda: channel.send_json({}))
    sender.start()
    try:
        assert loop.serve(lambda slot: slot, [], [], True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    sender.join()


@pytest.mark.parametrize("raises", [True, False])
def test_a_signals_handler_may_raise_while_it_waits(pipe: tuple[BlockLoop, Channel], raises: bool) -> None:
    """The exception belongs to no request, so no answer is sent."""
    loop, channel = pipe
    heard = []

    def handle(*_: object) -> None:
        heard.append(True)
        if raises:
            raise KeyError("of a handler")
        channel.send_json({})

    late: list[bool] = []
    at_last = threading.Timer(20.0, lambda: (late.append(True), channel.send_json({})))
    at_last.start()
    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.5)  # the loop must be waiting by then, also on a busy machine
    try:
        if raises:
            with pytest.raises(RaisedWhileWaiting) as raised:
                loop.serve(lambda slot: slot, [], [], True)
            assert isinstance(raised.value.__cause__, KeyError)
        else:
            assert loop.serve(lambda slot: slot, [], [], True)
    finally:
        at_last.cancel()
        signal.signal(signal.SIGALRM, before)
    assert heard == [True] and not late


def test_an_exception_of_a_call_is_not_taken_for_a_handlers(pipe: tuple[BlockLoop, Channel]) -> None:
    loop, channel = pipe
    ask(channel, 0)
    with pytest.raises(ZeroDivisionError):
        loop.serve(lambda slot: 1 // 0, [[]], [], True)


def test_a_frame_that_claims_to_be_longer_than_there_is_is_left(pipe: tuple[BlockLoop, Channel]) -> None:
    loop, channel = pipe
    channel.connection.sendall(struct.pack("<IBH", 0xFFFFFFFE, RUN, WITH_PYTHON))
    kept: list[Any] = []
    assert loop.serve(lambda slot: slot, [[]], kept, True)
    assert kept == []


def test_without_loading_there_is_no_native_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library cannot be loaded from a disk from which no program may run."""
    monkeypatch.setattr(block_loop_build, "_compiled", lambda: b"no library")
    assert build_block_loop(tmp_path) is None


def test_without_a_compiler_there_is_no_native_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_loop_build.shutil, "which", lambda name: None)
    block_loop_build._compiled.cache_clear()
    try:
        assert build_block_loop(tmp_path) is None
    finally:
        block_loop_build._compiled.cache_clear()


def test_too_many_pointers_are_refused(desk: Desk) -> None:
    session = desk.open("honest")
    session.prepare()
    with pytest.raises(WorkerCheated, match="left 2 outputs where 4"):
        desk.worker.run_block([0, 1], 2, 30.0)


SERVES_ITSELF = """
import json
import socket
import struct
import sys

import torch

EPS = 1e-6
worker = None
taken_over = False


def chain(x, w, *, eps):
    centred = x - x.mean(-1, keepdim=True)
    inverse = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    return torch.tanh(centred * inverse * (1 + w))


def at_once(slots):
    xs, ws = torch.stack([slot[0] for slot in slots]), torch.stack([slot[1] for slot in slots])[:, None, :]
    return torch.tanh(torch.nn.functional.layer_norm(xs, xs.shape[-1:], eps=EPS).mul_(1 + ws)).unbind(0)


def serve():
    pipe, kept = worker.channel.connection, worker.kept
    worker.channel.send_json({"ok": True})
    pipe.settimeout(None)
    while True:
        head = pipe.recv(16384, socket.MSG_PEEK)
        if len(head) > 6 and head[4:6] == b"R\\x01":
            pipe.recv(len(head))
            called = [worker.slots[slot] for slot in struct.unpack(f"<{(len(head) - 7) // 2}H", head[7:])]
            ys = at_once(called) if len(called) > 1 else [chain(*slot[:2], eps=EPS) for slot in called]
            kept.extend(ys)
            found = b"".join(y.data_ptr().to_bytes(8, "little") for y in ys)
            pipe.send(len(found).to_bytes(4, "little") + b"D" + found)
            continue
        tag, payload, descriptors = worker.next_request()
        if tag == ord("R"):
            worker.run(payload)
            continue
        worker.channel.send_json(worker.answer(payload, descriptors).model_dump())


def mix(x, w, *, eps):
    global worker
    frame = sys._getframe(1)
    while frame is not None and worker is None:
        if hasattr(frame.f_locals.get("self"), "slots"):
            worker = frame.f_locals["self"]
            reclaim = worker.device.reclaim

            def take_over():
                global taken_over
                reclaim()
                if not taken_over:
                    taken_over = True
                    serve()

            worker.device.reclaim = take_over
        frame = frame.f_back
    return chain(x, w, eps=eps)
"""


@pytest.mark.clock
@pytest.mark.slow
def test_no_shorter_way_pays_for_work_that_is_shared_between_calls(
    tmp_path: Path, private_tmp: Path, quiet: Any, write_candidate: Any
) -> None:
    """The candidate computes a run of calls at once and serves the judge itself. With the Python loop its single calls
    seemed fast enough to be believed: `faster`, 2.8 times."""
    candidate = write_candidate(tmp_path / "serves_itself", SERVES_ITSELF, op="mix")
    request = JudgeRequest(
        task=str(Path(__file__).parents[2] / "exploits" / "mix_task"), candidate=candidate, rows="mix_small",
        device="cpu", ledger=tmp_path / "ledger", wait_s=600.0,
    )  # fmt: skip
    verdict = judge(request, quiet)
    assert verdict.provenance["block_loop"] == "native"
    (row,) = verdict.rows
    assert verdict.verdict not in GOOD and row.verdict not in GOOD, row.reasons
