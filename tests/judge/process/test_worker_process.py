"""Real workers with real faults: each fault fails its own request with a clear message, and affects nothing else.

One source file contains every behaviour. A test loads the function it needs into a shared worker. After a fault that
ends the worker, the next test starts another.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernwright.judge.device.block_loop_build import build_block_loop
from kernwright.judge.process.block import Block
from kernwright.judge.process.faults import StrayProcess, WorkerCheated, WorkerFailed
from kernwright.judge.process.memory import MemorySpan
from kernwright.judge.process.worker_process import WorkerProcess
from kernwright.judge.protocol.messages import Done, Load, Prepare
from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.session.session import Session
from kernwright.judge.system.landlock import landlock_version
from kernwright.judge.system.sandbox import Sandbox
from kernwright.judge.system.users import processes_of, why_no_other_user
from kernwright.tasks.task import Task, load_task

pytestmark = pytest.mark.whole_machine  # blocks are timed, and helper processes are found by their processor time

BEHAVIOURS = '''
import ctypes, json, os, socket, stat, struct, subprocess, sys, time
import torch


def honest(x, w, *, alpha=2.0):
    return alpha * x + w


def begins(x, w, *, alpha=2.0):
    """How many blocks have begun as those of a worker that stood still do."""
    from kernwright.judge.worker.worker_device import CpuWorkerDevice

    if not hasattr(begins, "count"):
        begins.count = 0
        CpuWorkerDevice.begin = lambda self: setattr(begins, "count", begins.count + 1)
    return torch.full_like(x, begins.count)


def pleads(x, w, *, alpha=2.0):
    """Fights a thread of its own for its processor, then sleeps as long: ready, and not running."""
    import hashlib, threading

    def work():
        hashlib.sha256(b"x" * 60_000_000).digest()  # beside the interpreter's lock

    other = threading.Thread(target=work)
    start = time.monotonic()
    other.start()
    work()
    other.join()
    time.sleep(time.monotonic() - start)
    return honest(x, w, alpha=alpha)


def headless(x, w, *, alpha=2.0):
    """A child whose first thread has ended, in a session of its own: a zombie by its state, and at work."""
    import threading

    if not hasattr(headless, "started"):
        headless.started = True
        if os.fork() == 0:
            os.setsid()
            threading.Thread(target=time.sleep, args=(60,)).start()
            ctypes.CDLL(None).syscall({"aarch64": 93}.get(os.uname().machine, 60), 0)
        time.sleep(0.5)
    return honest(x, w, alpha=alpha)


def crash(x, w, *, alpha=2.0):
    ctypes.string_at(0)


def leave(x, w, *, alpha=2.0):
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)


def hang(x, w, *, alpha=2.0):
    time.sleep(120)


def complain(x, w, *, alpha=2.0):
    raise ArithmeticError("no such luck")


def environment(x, w, *, alpha=2.0):
    raise ArithmeticError(json.dumps(dict(os.environ)))


def judges_pipe():
    for fd in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(fd)).st_mode):
                return int(fd)
        except OSError:
            continue


def send(tag, payload):
    os.write(judges_pipe(), struct.pack("<IB", len(payload), ord(tag)) + payload)
    return torch.empty(0)


def garbage(x, w, *, alpha=2.0):
    os.write(judges_pipe(), b"\\xff" * 64)
    time.sleep(30)


def not_json(x, w, *, alpha=2.0):
    send("J", b"{broken")
    time.sleep(30)


def forged(answer):
    def function(x, w, *, alpha=2.0):
        send("J", json.dumps(answer).encode())
        time.sleep(30)
    return function


no_pointers = forged({"ok": True})
null_pointers = forged({"pointers": None})
text_pointers = forged({"pointers": ["here"]})
infinite_pointer = forged({"pointers": [1e999]})
wild_pointer = forged({"pointers": [8]})


def early_done(x, w, *, alpha=2.0):
    send("D", b"")
    time.sleep(30)


def odd_done(x, w, *, alpha=2.0):
    send("D", b"123")
    time.sleep(30)


def other_tag(x, w, *, alpha=2.0):
    send("Q", b"not json")
    time.sleep(30)


def child(x, w, *, alpha=2.0):
    if not hasattr(child, "process"):
        child.process = subprocess.Popen(["sleep", "60"])
    return honest(x, w, alpha=alpha)


def daemon(x, w, *, alpha=2.0):
    """Twice forked and in a session of its own: no child of the worker, not stopped with it."""
    if not hasattr(daemon, "started"):
        daemon.started = True
        read, write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(write, str(os.getpid()).encode())
                time.sleep(20)
            os._exit(0)
        os.wait()
        daemon.pid = int(os.read(read, 20))
    return honest(x, w, alpha=alpha)


def bomb(x, w, *, alpha=2.0):
    """Forks until it cannot, in sessions of their own; every child does the same and then goes on for a while."""
    first, end = os.getpid(), time.monotonic() + 100
    while time.monotonic() < end:
        try:
            if os.fork() == 0:
                os.setsid()
        except OSError:
            if os.getpid() == first:
                raise ArithmeticError("could not fork any more") from None
            time.sleep(0.01)
    os._exit(0)


def leave_a_daemon(x, w, *, alpha=2.0):
    """Gone itself, with a process left behind that holds none of its pipes."""
    if os.fork() == 0:
        os.setsid()
        os.closerange(3, 100)
        time.sleep(60)
        os._exit(0)
    os._exit(4)


def hoard(x, w, *, alpha=2.0):
    """More memory than it may have, touched page by page."""
    return torch.ones(10**12, dtype=torch.uint8)


def fill_disk(x, w, *, alpha=2.0):
    with open("large", "wb") as file:
        file.truncate(3 * 2**30)


def wake_itself(x, w, *, alpha=2.0):
    """The kernel ends the next stop, by a timer or by a byte on a pipe that another thread need not be awake for."""
    event = (ctypes.c_int * 16)(0, 0, 18, 0)
    timer = ctypes.c_void_p()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.timer_create(1, event, ctypes.byref(timer)) < 0:
        raise PermissionError("no timer")
    libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 500_000_000), None)
    return honest(x, w, alpha=alpha)


def close_pipe(x, w, *, alpha=2.0):
    os.close(judges_pipe())
    time.sleep(60)


def attack_judge(x, w, *, alpha=2.0):
    said = []
    for attempt in (
        lambda: os.kill(os.getppid(), 9),
        lambda: open(f"/proc/{os.getppid()}/mem", "rb"),
        lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: open(os.path.join(os.path.dirname(__file__), "planted.py"), "w"),
        lambda: os.listdir("/tmp"),
    ):
        try:
            attempt()
            said.append("done")
        except OSError:
            said.append("refused")
    raise ArithmeticError(" ".join(said))


def plant(x, w, *, alpha=2.0):
    """Leaves what a careless next start would run or write: modules, and links where a log could be."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = os.path.join(os.environ["HOME"], ".local", "lib", version, "site-packages")
    os.makedirs(site, exist_ok=True)
    for name in ("usercustomize.py", "sitecustomize.py", "torch.py"):
        for folder in (site, os.environ["HOME"]):
            with open(os.path.join(folder, name), "w") as file:
                file.write("raise SystemExit('planted')")
    return honest(x, w, alpha=alpha)
def restless(x, w, *, alpha=2.0):
    """A timer of the kernel continues this process a little after it was stopped, and a thread has work to do then. It
    does so again and again: on a busy machine the first time may come before the stop."""
    import signal, threading
    if not hasattr(restless, "timer"):
        libc, restless.timer = ctypes.CDLL(None), ctypes.c_void_p()
        event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0)
        signal.signal(signal.SIGCONT, lambda *_: None)
        libc.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(restless.timer))
        threading.Thread(target=lambda: [torch.ones(200, 200).sum() for _ in iter(int, 1)], daemon=True).start()
    ctypes.CDLL(None).timer_settime(restless.timer, 0, (ctypes.c_long * 4)(0, 500_000_000, 0, 50_000_000), None)
    return honest(x, w, alpha=alpha)


def brief(x, w, *, alpha=2.0):
    """A process of its own for most of the call, gone when it ends."""
    process = os.fork()
    if process == 0:
        time.sleep(0.03)
        os._exit(0)
    os.waitpid(process, 0)
    return honest(x, w, alpha=alpha)


class Unserved:
    """An address whose page a stopped thread would have to bring: userfaultfd(2)."""

    def __init__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        number = 323 if os.uname().machine == "x86_64" else 282
        fd = libc.syscall(number, os.O_CLOEXEC)
        if fd < 0:
            raise ArithmeticError("no userfaultfd")
        api = (ctypes.c_uint64 * 3)(0xAA, 0, 0)
        self.address = libc.mmap(None, ctypes.c_size_t(1 << 16), 3, 0x22, -1, ctypes.c_long(0))
        area = (ctypes.c_uint64 * 4)(self.address, 1 << 16, 1, 0)
        if libc.ioctl(fd, ctypes.c_ulong(0xC018AA3F), api) or libc.ioctl(fd, ctypes.c_ulong(0xC020AA00), area):
            raise ArithmeticError("no userfaultfd")

    def data_ptr(self):
        return self.address


def unserved(x, w, *, alpha=2.0):
    return Unserved()


def two_cores(x, w, *, alpha=2.0):
    """Unpins itself and multiplies on two threads of its own for a while."""
    import threading
    os.sched_setaffinity(0, range(os.cpu_count()))
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), range(os.cpu_count()))
    torch.set_num_threads(1)
    a = torch.ones(400, 400)
    def work():
        end = time.perf_counter() + 0.15
        while time.perf_counter() < end:
            a @ a
    other = threading.Thread(target=work)
    other.start()
    work()
    other.join()
    return honest(x, w, alpha=alpha)
'''


class Bench:
    """A worker with one behaviour loaded and the tiny row open."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task, self.folder = task, folder
        folder.chmod(0o755)  # the worker may run as another user
        (folder / "kernel.py").write_text(BEHAVIOURS)
        (self.row,) = task.select("axpy_small")
        self.worker: WorkerProcess | None = None
        self.content = {"x": torch.randn(6, 64), "w": torch.randn(64)}

    def fresh(self, *off: str, native: bool = True) -> WorkerProcess:
        self.end()
        self.worker = WorkerProcess(
            label="candidate",
            scratch=self.folder / ("scratch" if "user" not in off else "shared_scratch"),
            threads=1,
            processor=max(os.sched_getaffinity(0)),
            reads=[self.folder],
            disabled_walls=dict.fromkeys(off, "a test"),
            block_loop=build_block_loop(self.folder / "loop") if native else None,
        )
        self.worker.wait_ready()
        return self.worker

    def end(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker = None

    def open(self, function: str, slots: int = 2) -> Session:
        worker = self.worker
        if worker is None or worker.process.poll() is not None:
            worker = self.fresh()
        side = SideOrders(
            kind="candidate",
            language="python",
            folder=str(self.folder),
            file="kernel.py",
            function=function,
            style="returns",
            op="axpy",
        )
        worker.request(Load(side=side), Done, 60.0)
        session = Session(worker, self.task.ops["axpy"], self.row, "returns", slots)
        for slot in range(slots):
            session.fill(slot, self.content)
        return session

    def works(self) -> bool:
        """Return True if an honest call succeeds on the present worker, or on a new one."""
        session = self.open("honest")
        try:
            outputs = session.check_call(0, 30.0)
            return torch.equal(outputs["y"], 2.0 * self.content["x"] + self.content["w"])
        finally:
            session.close()


@pytest.fixture(scope="module")
def shared(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(load_task(tiny_folder), tmp_path_factory.mktemp("worker"))
    yield bench
    bench.end()


@pytest.fixture
def bench(shared: Bench) -> Bench:
    return shared


@pytest.fixture
def spent(shared: Bench) -> Iterator[Bench]:
    """End the worker after the test, for behaviours after which it cannot be used again."""
    yield shared
    shared.end()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_an_honest_worker_stands_still_between_requests(bench: Bench) -> None:
    session = bench.open("honest")
    worker = session.worker
    assert state_of(worker.pid) == "T"
    block = worker.run_block([1, 0, 1], 1, 30.0)
    assert state_of(worker.pid) == "T"
    assert len(set(block.pointers)) == 3
    assert block.elapsed_ns > 0
    outputs = session.snapshot([1, 0, 1], block.pointers)
    assert all(torch.equal(o["y"], 2.0 * bench.content["x"] + bench.content["w"]) for o in outputs)
    assert worker.run_block([], 0, 30.0).pointers == ()
    worker.refuse_helpers(block)
    session.close()


def test_a_worker_that_stays_awake_stands_still_when_it_is_told_to(bench: Bench) -> None:
    session = bench.open("honest")
    worker = session.worker
    blocks = [worker.run_block([slot], 1, 30.0, stays_awake=True) for slot in (1, 0, 1)]
    assert state_of(worker.pid) != "T"
    worker.stand_still()
    assert state_of(worker.pid) == "T"
    worker.refuse_stirring()
    whole = Block.joined(blocks)
    assert len(set(whole.pointers)) == 3
    outputs = session.snapshot([1, 0, 1], whole.pointers)
    assert all(torch.equal(o["y"], 2.0 * bench.content["x"] + bench.content["w"]) for o in outputs)
    assert len(worker.run_block([0], 1, 30.0).pointers) == 1  # the block runs as on any other worker afterwards
    assert state_of(worker.pid) == "T"
    session.close()


def test_only_a_block_after_a_standstill_has_a_beginning(spent: Bench) -> None:
    """The device's `begin` is not called before single calls of a worker that stays awake. It is called again after the
    next standstill, whatever was requested in between. Only the Python loop has it, which workers of a GPU use."""
    spent.fresh(native=False)
    session = spent.open("begins")
    worker = session.worker
    found = []

    def begun(stays_awake: bool = False, calls: int = 1) -> None:
        block = worker.run_block([0] * calls, 1, 30.0, stays_awake=stays_awake)
        found.extend(int(outputs["y"][0, 0]) for outputs in session.snapshot([0] * calls, block.pointers))

    begun()
    begun()
    begun(stays_awake=True, calls=0)
    begun(stays_awake=True)
    begun(stays_awake=True)
    worker.stand_still()
    session.prepare()
    begun()
    begun(stays_awake=True, calls=0)
    begun(stays_awake=True)
    worker.stand_still()
    assert found == [0, 1, 2, 2, 3, 4]
    session.close()


def test_a_worker_that_stays_awake_is_held_to_its_processors(bench: Bench) -> None:
    session = bench.open("honest")
    worker = session.worker
    block = worker.run_block([0], 1, 30.0, stays_awake=True)
    awake, used = worker.stand_still()
    assert awake >= block.elapsed_ns
    assert 0 < used < 1.5 * awake  # it waited actively, on its only processor
    worker.refuse_helpers(replace(block, running_ns=awake, processor_ns=used))
    with pytest.raises(WorkerCheated, match="processors in a timed block; each side is granted 1"):
        worker.refuse_helpers(replace(block, running_ns=awake, processor_ns=3 * awake + 10**6))
    session.close()


def test_inputs_of_a_worker_that_stays_awake_come_when_the_clock_runs(bench: Bench) -> None:
    session = bench.open("honest")
    block = session.worker.run_block([0], 1, 30.0, bring=lambda: time.sleep(0.05), stays_awake=True)
    assert block.elapsed_ns > 50_000_000
    session.worker.stand_still()
    session.close()


@pytest.mark.parametrize("function", ["complain", "crash", "leave"])
def test_a_side_that_fails_awake_is_reported_and_the_next_worker_works(bench: Bench, function: str) -> None:
    session = bench.open(function)
    session.worker.run_block([], 1, 30.0, stays_awake=True)
    with pytest.raises(WorkerFailed):
        session.worker.run_block([0], 1, 30.0, stays_awake=True)
    session.close()
    assert bench.works()


def test_a_worker_that_stands_still_is_not_told_to_again(bench: Bench) -> None:
    """The kernel reports a stop only once, so waiting for a second report would never end."""
    session = bench.open("complain")
    session.worker.run_block([], 1, 30.0, stays_awake=True)
    with pytest.raises(WorkerFailed, match="no such luck"):
        session.worker.run_block([0], 1, 30.0, stays_awake=True)
    pid = session.worker.pid
    assert session.worker.stand_still() == (0, 0)
    session.close()
    assert bench.works()
    assert bench.worker is not None and bench.worker.pid == pid


def test_a_request_with_descriptors_reaches_a_worker_that_waits_awake(bench: Bench) -> None:
    session = bench.open("honest")
    worker = session.worker
    worker.run_block([], 1, 30.0, stays_awake=True)
    worker.stand_still()
    session.close()
    assert bench.works()
    assert bench.worker is not None and bench.worker.pid == worker.pid


def test_the_typical_block_counts_and_not_the_one_with_a_hiccup() -> None:
    blocks = [
        Block(elapsed_ns=elapsed, running_ns=elapsed, processor_ns=7, ready_ns=1, pointers=(number,))
        for number, elapsed in enumerate((900, 100, 110, 120, 5000))
    ]
    typical = Block.typical(blocks)
    assert typical.elapsed_ns == 5 * 120
    assert (typical.processor_ns, typical.exchanges, typical.pointers) == (35, 5, (0, 1, 2, 3, 4))


def test_an_exception_is_reported_and_the_worker_goes_on(bench: Bench) -> None:
    session = bench.open("complain")
    pid = session.worker.pid
    with pytest.raises(WorkerFailed, match="ArithmeticError: no such luck") as caught:
        session.check_call(0, 30.0)
    assert caught.value.kind == "ArithmeticError"
    with pytest.raises(WorkerFailed, match="no such luck"):
        session.worker.run_block([0], 1, 30.0)
    session.close()
    assert bench.works()
    assert bench.worker is not None and bench.worker.pid == pid


def test_nothing_of_the_judges_environment_is_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGES_SECRET", "hush")
    bench.fresh()
    session = bench.open("environment")
    with pytest.raises(WorkerFailed) as caught:
        session.check_call(0, 30.0)
    session.close()
    said = str(caught.value)
    assert "JUDGES_SECRET" not in said and "hush" not in said
    assert f'"HOME": "{bench.folder / "scratch"}"' in said
    assert '"OMP_NUM_THREADS": "1"' in said


@pytest.mark.parametrize(
    ("function", "said"),
    [("crash", "crashed: killed by SIGSEGV"), ("leave", r"crashed: exited with status 3 \(last words\)")],
)
def test_a_crash_is_reported_and_the_next_worker_works(bench: Bench, function: str, said: str) -> None:
    session = bench.open(function)
    with pytest.raises(WorkerFailed, match=said):
        session.check_call(0, 30.0)
    session.close()
    session = bench.open(function)
    with pytest.raises(WorkerFailed, match=said):
        session.worker.run_block([0, 1], 1, 30.0)
    session.close()
    assert bench.works()


def test_a_hang_ends_at_its_deadline(bench: Bench) -> None:
    session = bench.open("hang")
    pid = session.worker.pid
    with pytest.raises(WorkerFailed, match="hung: no answer within"):
        session.check_call(0, 0.3)
    assert not Path(f"/proc/{pid}").exists()
    session.close()
    session = bench.open("hang")
    with pytest.raises(WorkerFailed, match="hung"):
        session.worker.run_block([0], 1, 0.3)
    session.close()
    assert bench.works()


def test_a_worker_that_dies_while_it_stands_still_is_a_failed_one(spent: Bench) -> None:
    session = spent.open("honest")
    os.kill(session.worker.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while state_of(session.worker.pid) != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(WorkerFailed, match="killed by SIGKILL"):
        session.worker.run_block([0], 1, 30.0)
    session.close()
    assert spent.works()


# Forged frames


@pytest.mark.parametrize("function", ["garbage", "not_json", "early_done"])
def test_garbage_on_the_judges_pipe_is_tampering(spent: Bench, function: str) -> None:
    session = spent.open(function)
    with pytest.raises(WorkerCheated, match="on the judge's pipe"):
        session.check_call(0, 30.0)
    session.close()


@pytest.mark.parametrize(
    "function",
    [
        "no_pointers",
        "null_pointers",
        "text_pointers",
        "infinite_pointer",
        "wild_pointer",
    ],
)
def test_a_forged_answer_to_a_check_is_refused(spent: Bench, function: str) -> None:
    session = spent.open(function)
    with pytest.raises((WorkerFailed, WorkerCheated)):
        session.check_call(0, 30.0)
    session.close()


@pytest.mark.parametrize("function", ["early_done", "odd_done", "other_tag"])
def test_a_forged_answer_to_a_block_is_refused(spent: Bench, function: str) -> None:
    session = spent.open(function)
    with pytest.raises((WorkerFailed, WorkerCheated)):
        block = session.worker.run_block([0, 1], 1, 30.0)
        session.snapshot([0, 1], block.pointers)
    session.close()


def test_after_all_of_these_a_fresh_worker_works(bench: Bench) -> None:
    assert bench.works()


def test_an_address_that_cannot_be_read_is_a_failure(bench: Bench) -> None:
    session = bench.open("honest")
    with pytest.raises(WorkerFailed, match="cannot be read"):
        session.worker.memory.read(4096, torch.empty(4))
    session.close()


def test_memory_is_read_through_the_workers_own_window_too(bench: Bench) -> None:
    """A judge that may not read another user's memory must use this window."""
    session = bench.open("honest")
    worker = session.worker
    block = worker.run_block([0], 1, 30.0)
    direct, window = torch.empty(6, 64), torch.zeros(6, 64)
    worker.memory.read(block.pointers[0], direct)
    span = MemorySpan(window.data_ptr(), window.numel() * 4)
    assert worker.memory._read_through_window(block.pointers[0], span) == window.numel() * 4
    assert torch.equal(direct, window) and direct.abs().sum() > 0
    assert worker.memory._read_through_window(4096, span) == -1
    session.close()


# Helpers


def test_a_child_process_is_seen(spent: Bench) -> None:
    session = spent.open("child")
    worker = session.worker
    block = worker.run_block([0, 1], 1, 30.0)
    assert worker.tree.descendants(), "the child was not found"
    with pytest.raises(WorkerCheated, match="processes of its own"):
        worker.refuse_helpers(block)
    with pytest.raises(WorkerCheated, match="while it stood still"):
        worker.refuse_company()
    session.close()


def test_a_process_that_left_its_parent_is_seen(spent: Bench) -> None:
    session = spent.open("daemon")
    worker = session.worker
    block = worker.run_block([0, 1], 1, 30.0)
    try:
        with pytest.raises(WorkerCheated, match="left a process running"):
            worker.refuse_helpers(block)
        with pytest.raises(StrayProcess):
            worker.refuse_company()
    finally:
        session.close()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_a_second_core_is_out_of_reach(bench: Bench) -> None:
    worker = bench.fresh()
    if "seccomp" in " ".join(worker.isolation.missing):
        pytest.skip("no seccomp here")
    assert worker.isolation.processors == f"pinned to {worker.processor}"
    session = bench.open("two_cores")
    with pytest.raises(WorkerFailed, match="PermissionError"):
        session.worker.run_block([0], 1, 30.0)
    session.close()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_a_second_core_is_seen(spent: Bench) -> None:
    spent.fresh("seccomp")
    session = spent.open("two_cores")
    said = ""
    for _ in range(5):  # a busy machine may not have a second core to give
        block = session.worker.run_block([0], 1, 30.0)
        try:
            session.worker.refuse_helpers(block)
        except WorkerCheated as cheated:
            said = str(cheated)
            break
    session.close()
    assert "processors in a timed block; each side is granted 1" in said or "left the processor" in said


@pytest.mark.parametrize("elapsed_ms", [0.5, 1.4, 4.0, 40.0])
def test_two_cores_are_seen_however_short_the_block(bench: Bench, elapsed_ms: float) -> None:
    """Small rows have blocks of well under a millisecond. If a helper went unnoticed there, it would double the
    speed."""
    bench.works()
    assert bench.worker is not None
    elapsed = int(elapsed_ms * 1e6)
    bench.worker.refuse_helpers(
        Block(elapsed_ns=elapsed, running_ns=elapsed, processor_ns=elapsed, ready_ns=0, pointers=())
    )
    with pytest.raises(WorkerCheated):
        bench.worker.refuse_helpers(
            Block(elapsed_ns=elapsed, running_ns=elapsed, processor_ns=2 * elapsed, ready_ns=0, pointers=())
        )


def test_waiting_is_time_without_a_processor() -> None:
    assert Block(elapsed_ns=2000, running_ns=1000, processor_ns=400, ready_ns=900, pointers=()).waiting_ns == 600
    assert (
        Block(elapsed_ns=2000, running_ns=1000, processor_ns=400, ready_ns=100, pointers=()).waiting_ns == 100
    )  # it slept, which the machine did not cause
    assert Block(elapsed_ns=2000, running_ns=1000, processor_ns=1400, ready_ns=900, pointers=()).waiting_ns == 0


def test_a_helper_that_looks_dead_is_seen(spent: Bench) -> None:
    session = spent.open("headless")
    block = session.worker.run_block([0], 1, 30.0)
    with pytest.raises(WorkerCheated, match="kept processes of its own running"):
        session.worker.refuse_company()
    with pytest.raises(WorkerCheated, match="kept processes of its own running"):
        session.worker.refuse_helpers(block)
    session.close()


def test_a_side_that_makes_itself_wait_has_no_excuse(bench: Bench) -> None:
    """A block in which a side had to wait is run again. If a side could cause this, it could choose its blocks."""
    session = bench.open("pleads")
    if session.worker.processor is None:
        pytest.skip("workers are not pinned here")
    for _ in range(20):  # Other processes may keep it waiting too, but hardly in every block.
        block = session.worker.run_block([0], 1, 60.0)
        assert block.running_ns - block.processor_ns > 0.3 * block.running_ns, "it slept"
        if block.waiting_ns < 0.1 * block.running_ns:
            break
    else:
        pytest.fail(f"kept waiting by itself: {block}")
    session.close()


# Starting


def test_files_in_a_scratch_folder_shadow_no_library(tmp_path: Path) -> None:
    """Otherwise a side could leave a module that the next worker imports in place of its own."""
    (tmp_path / "struct.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "torch.py").write_text("raise SystemExit('shadowed')")
    worker = WorkerProcess(label="candidate", scratch=tmp_path, threads=1, processor=None)
    try:
        worker.wait_ready()
        assert worker.isolation.dies_with_judge is True
    finally:
        worker.kill()


# Walls

WALLS = [(), ("user",), ("user", "landlock", "seccomp", "network")]


def survivors(worker: WorkerProcess) -> list[int]:
    """Return the processes of this worker that still run: by its user if it has one, otherwise by its scratch
    folder."""
    if worker.sandbox.user is not None:
        return processes_of(worker.sandbox.user)
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if cwd.readlink() == worker.scratch:
                found.append(int(cwd.parent.name))
    return found


@pytest.mark.parametrize("off", WALLS[:2])
def test_a_worker_cannot_reach_the_judge_nor_the_world(spent: Bench, off: tuple[str, ...]) -> None:
    if landlock_version() < 6:
        pytest.skip(f"landlock {landlock_version()}")
    spent.fresh(*off)
    session = spent.open("attack_judge")
    with pytest.raises(WorkerFailed, match="refused refused refused refused refused refused"):
        session.check_call(0, 30.0)
    session.close()
    assert spent.works()


def test_a_worker_cannot_order_its_own_waking(spent: Bench) -> None:
    worker = spent.fresh()
    if "seccomp" in " ".join(worker.isolation.missing):
        pytest.skip("no seccomp here")
    session = spent.open("wake_itself")
    with pytest.raises(WorkerFailed, match="no timer"):
        session.check_call(0, 30.0)
    session.close()


@pytest.mark.parametrize("then", ["block", "request"])
def test_a_worker_that_continues_by_itself_is_seen(spent: Bench, then: str) -> None:
    spent.fresh("seccomp")
    session = spent.open("wake_itself")
    worker = session.worker
    worker.run_block([0], 1, 30.0)
    deadline = time.monotonic() + 60
    while state_of(worker.pid) == "T" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state_of(worker.pid) != "T", "the timer did not wake it"
    with pytest.raises(WorkerCheated, match="went on while it was to stand still"):
        if then == "block":
            worker.run_block([0], 1, 30.0)
        else:
            session.prepare()
    session.close()


@pytest.mark.parametrize("off", WALLS)
def test_a_fork_bomb_ends_with_its_worker(spent: Bench, off: tuple[str, ...]) -> None:
    worker = spent.fresh(*off)
    if worker.isolation.processes == "unlimited":
        pytest.skip("nothing limits processes here: " + "; ".join(worker.isolation.missing))
    session = spent.open("bomb")
    with pytest.raises(WorkerFailed, match=r"could not fork any more|hung"):
        session.check_call(0, 90.0)
    session.close()
    assert len(survivors(worker)) > 100, "the bomb did not go off"
    worker.kill()
    assert survivors(worker) == []
    assert spent.works()


@pytest.mark.parametrize("off", WALLS)
def test_processes_of_a_dead_worker_end_with_it(spent: Bench, off: tuple[str, ...]) -> None:
    worker = spent.fresh(*off)
    session = spent.open("leave_a_daemon")
    with pytest.raises(WorkerFailed, match="exited with status 4"):
        session.check_call(0, 30.0)
    session.close()
    assert survivors(worker) != []
    worker.kill()
    assert survivors(worker) == []
    assert spent.works()


def test_killing_one_worker_leaves_the_others(tmp_path: Path) -> None:
    workers = [
        WorkerProcess(label=name, scratch=tmp_path / name, threads=1, processor=None) for name in ("baseline", "again")
    ]
    try:
        for worker in workers:
            worker.wait_ready()
        workers[0].kill()
        assert state_of(workers[1].pid) == "T"
        assert workers[1].request(Prepare(), Done, 30.0) == Done()
    finally:
        for worker in workers:
            worker.kill()


def test_the_judges_own_children_are_not_taken_for_orphans(tmp_path: Path) -> None:
    """The process starts after the worker and ends after it. A process of another user is not taken for the
    worker's."""
    worker = WorkerProcess(label="candidate", scratch=tmp_path / "scratch", threads=1, processor=None)
    if worker.sandbox.user is None:
        worker.kill()
        pytest.skip(worker.sandbox.why_same_user)
    with subprocess.Popen(["sleep", "60"]) as own:
        try:
            worker.wait_ready()
            assert worker.tree.descendants() == []
            worker.kill()
            assert own.poll() is None
        finally:
            own.kill()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("hoard", "can't allocate memory|not enough memory"),
        ("fill_disk", "File too large|SIGXFSZ"),
    ],
)
def test_exceeded_limits_are_reported_and_the_next_worker_works(spent: Bench, function: str, said: str) -> None:
    session = spent.open(function)
    with pytest.raises(WorkerFailed, match=said):
        session.check_call(0, 60.0)
    session.close()
    assert spent.works()


def test_a_worker_that_closes_its_pipe_is_ended(spent: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    session = spent.open("close_pipe")
    process = session.worker.process
    wait = process.wait  # the judge waits five seconds for the end of a process without a pipe

    def wait_briefly(timeout: float | None = None) -> int:
        return wait(timeout and min(timeout, 0.5))

    monkeypatch.setattr(process, "wait", wait_briefly)
    with pytest.raises(WorkerFailed, match="closed the judge's pipe and went on running"):
        session.check_call(0, 60.0)
    session.close()
    assert process.returncode == -signal.SIGKILL
    assert spent.works()


def test_files_that_a_worker_planted_are_not_run_by_the_next(spent: Bench) -> None:
    spent.fresh()
    session = spent.open("plant")
    session.check_call(0, 30.0)
    session.close()
    spent.fresh()
    assert spent.works()


@pytest.mark.skipif(why_no_other_user() is not None, reason=str(why_no_other_user()))
def test_a_folder_keeps_its_user_and_no_two_share_one(tmp_path: Path) -> None:
    first, second = (Sandbox.around(tmp_path / name) for name in ("one", "two"))
    assert first.user is not None and second.user is not None
    assert first.user != second.user
    assert Sandbox.around(tmp_path / "one").user == first.user
    assert (tmp_path / "one").stat().st_uid == first.user
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o700


# What a worker does while it is stopped, or only for a moment.


def test_an_honest_worker_uses_no_processor_time_while_it_is_stopped(bench: Bench) -> None:
    session = bench.open("honest")
    for _ in range(200):
        session.worker.run_block([1, 0], 1, 30.0)
        session.worker.refuse_stirring()  # raises if it used a nanosecond
        assert state_of(session.worker.pid) == "T"
    session.close()


def test_a_worker_that_ends_its_own_stop_is_detected(spent: Bench) -> None:
    """Without seccomp, which otherwise forbids the timer."""
    spent.fresh("seccomp")
    session = spent.open("restless")
    with pytest.raises(WorkerCheated, match="while the judge had stopped it"):
        session.worker.run_block([0], 1, 30.0)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            session.worker.refuse_stirring()
            time.sleep(0.01)
    with pytest.raises(WorkerCheated, match=r"while (the judge had stopped it|it was to stand still)"):
        session.worker.run_block([0], 1, 30.0)
    session.close()


def test_a_process_that_lives_only_inside_blocks_is_seen_in_one_of_them(spent: Bench) -> None:
    session = spent.open("brief")
    with pytest.raises(WorkerCheated, match="processes of its own"):
        for _ in range(40):  # each look finds it in most of the blocks
            session.worker.refuse_helpers(session.worker.run_block([0, 1], 1, 30.0))
    session.close()


def test_memory_that_is_not_served_does_not_block_the_judge(spent: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernwright.judge.process.watchdog.STOP_DEADLINE_S", 1.0)
    session = spent.open("unserved")
    try:
        block = session.worker.run_block([0], 1, 30.0)
    except WorkerFailed as failed:
        pytest.skip(str(failed))
    with contextlib.suppress(WorkerFailed):  # the kernel decides whether memory of a killed worker can be read
        session.snapshot([0], block.pointers)
    assert session.worker.process.wait(60) == -signal.SIGKILL
    session.close()
    assert spent.works()
