"""Blocks of calls inside a worker, by the native loop and by Python's: the same in all but the time it takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.judge import block_loop
from kernwright.judge.block_loop import build_block_loop
from kernwright.judge.request import JudgeRequest, judge
from kernwright.judge.session import Session
from kernwright.judge.verdict import GOOD
from kernwright.judge.worker_faults import WorkerCheated, WorkerFailed
from kernwright.judge.worker_process import WorkerProcess
from kernwright.tasks.task import Task, load_task

KERNELS = """
import signal
import threading
import time

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


def ticking(x, w, *, alpha):
    global calls
    calls += 1
    if calls == 1:
        def tick():
            global ticks
            while True:
                ticks += 1
                time.sleep(0.001)

        threading.Thread(target=tick, daemon=True).start()
    return torch.full_like(x, float(ticks))


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
    """A worker of one kind of loop, and the tiny row."""

    def __init__(self, task: Task, folder: Path, native: bool) -> None:
        self.task = task
        folder.chmod(0o755)
        (folder / "kernel.py").write_text(KERNELS)
        (self.row,) = task.select("axpy_small")
        self.folder = folder
        loop = build_block_loop(folder / "loop") if native else None
        assert (loop is not None) == native
        self.worker = WorkerProcess(
            "candidate", folder / "scratch", 1, max(os.sched_getaffinity(0)), reads=[folder], block_loop=loop
        )
        self.worker.wait_ready()

    def open(self, function: str, slots: int = 6) -> Session:
        side: dict[str, Any] = {
            "kind": "candidate", "language": "python", "folder": str(self.folder), "file": "kernel.py",
            "function": function, "style": "returns", "op": "axpy",
        }  # fmt: skip
        self.worker.request({"do": "load", "side": side}, 60.0)
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


def test_calls_by_themselves_leave_each_its_output(desk: Desk) -> None:
    """No other request between them."""
    session = desk.open("honest")
    session.prepare()
    pointers = [session.run([slot])[0].pointers for slot in (4, 2, 4)]
    assert len({pointer for (pointer,) in pointers}) == 3


def test_what_a_call_raises_is_told_and_the_worker_goes_on(desk: Desk) -> None:
    session = desk.open("raises_in_the_third")
    session.prepare()
    session.run([0, 1])
    with pytest.raises(WorkerFailed, match="the third call") as failed:
        session.run([2, 3])
    assert failed.value.kind == "ValueError"
    assert len(desk.open("honest").run([0, 1])[0].pointers) == 2


@pytest.mark.parametrize("function", ["no_tensor", "no_tensor_in_a_block"])
def test_whoever_returns_no_tensor_is_told_so(desk: Desk, function: str) -> None:
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


def test_threads_of_a_side_run_while_it_is_asked_other_things(desk: Desk) -> None:
    """The loop gives Python's lock up while it waits, and takes it again for the calls."""
    session = desk.open("ticking")
    session.prepare()
    session.run([0])
    for _ in range(20):
        session.prepare()
        _, left = session.run([0])
    assert session.outputs_of(left, 0)["y"][0, 0].item() > 0


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
    assert desk.worker.process.wait(10.0) == 0


def test_without_a_compiler_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_loop.shutil, "which", lambda name: None)
    block_loop._compiled.cache_clear()
    try:
        assert build_block_loop(tmp_path) is None
    finally:
        block_loop._compiled.cache_clear()


def test_too_many_pointers_are_refused_whoever_sends_them(desk: Desk) -> None:
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
        message = json.loads(payload)
        answer = getattr(type(worker), message["do"])(worker, message, descriptors)
        worker.channel.send_json(answer or {"ok": True})


def mix(x, w, *, eps):
    global worker
    frame = sys._getframe(1)
    while frame is not None and worker is None:
        if hasattr(frame.f_locals.get("self"), "slots"):
            worker = frame.f_locals["self"]
            reclaim = worker.place.reclaim

            def take_over():
                global taken_over
                reclaim()
                if not taken_over:
                    taken_over = True
                    serve()

            worker.place.reclaim = take_over
        frame = frame.f_back
    return chain(x, w, eps=eps)
"""


@pytest.mark.slow
def test_no_shorter_way_pays_for_work_that_is_shared_between_calls(
    tmp_path: Path, private_tmp: Path, quiet: Any, write_candidate: Any
) -> None:
    """It computes a run of calls at once, and serves the judge itself. By Python's loop its calls by themselves seemed
    fast enough to believe it: `faster`, 2.8 times."""
    candidate = write_candidate(tmp_path / "serves_itself", SERVES_ITSELF, op="mix")
    request = JudgeRequest(
        task=str(Path(__file__).parents[1] / "exploits" / "mix_task"), candidate=candidate, rows="mix_small",
        device="cpu", ledger=tmp_path / "ledger", wait_s=600.0,
    )  # fmt: skip
    verdict = judge(request, quiet)
    assert verdict.provenance["block_loop"] == "native"
    (row,) = verdict.rows
    assert verdict.verdict not in GOOD and row.verdict == "inconclusive", verdict.reasons
    assert any("by itself" in reason for reason in row.reasons), row.reasons
