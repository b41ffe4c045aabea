"""The judge's handle on one worker: spawn, ask, run a block under the judge's clock, freeze, read its memory, kill.

Between requests a worker is stopped (SIGSTOP). Inputs are written while it is stopped and the clock starts before it is
resumed, so no part of a block's work can be done early; the clock stops after the worker is stopped again, so none can
be done late. What lies in its memory then is what the block produced. A process may know ways to end its own stop; its
processor time gives it away.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import select
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from kernwright.judge import procfs
from kernwright.judge.channel import DONE, RUN, Channel, ChannelClosed, ChannelGarbled, as_object
from kernwright.judge.linux import PR_SET_CHILD_SUBREAPER, prctl
from kernwright.judge.vigil import Vigil
from kernwright.judge.walls import Walls, import_folders
from kernwright.judge.worker_user import end_processes_of, owners_of
from kernwright.judge.zygote_process import NoZygote, zygote_for, zygote_pids

START_DEADLINE_S = 120.0
BUILD_DEADLINE_S = 300.0
DEVICE_DEADLINE_S = 30.0  # what a call has started must be over by then
STOP_DEADLINE_S = 10.0
FAMILY_DEADLINE_S = 60.0  # a fork bomb leaves its judge little of the processor
DYING_S = 0.5
CORE_SLACK = 1.05  # processor time over elapsed time that one granted thread may show
LEAST_SLACK_NS = 50_000
SPARE_PROCESSORS = 4
SPIN_S = 0.5
LEAST_LOOK_S = 0.001  # no process can be started and be of use in a block shorter than this
MOST_TEXT = 4000
INHERITED = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_libc = ctypes.CDLL(None, use_errno=True)
_workers: set[int] = set()


class _Watchdog:
    """Kills what does not stop in time: a thread parked in vfork(2), say, cannot be stopped at all."""

    def __init__(self) -> None:
        self._deadlines: dict[int, float] = {}
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def guarding(self, pid: int) -> Iterator[None]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="kernwright-watchdog", daemon=True)
            self._thread.start()
        self._deadlines[pid] = time.monotonic() + STOP_DEADLINE_S
        try:
            yield
        finally:
            self._deadlines.pop(pid, None)

    def _watch(self) -> None:
        while True:
            time.sleep(1.0)
            now = time.monotonic()
            for pid, deadline in list(self._deadlines.items()):
                if now > deadline:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)


_watchdog = _Watchdog()


class WorkerFailed(Exception):
    """The worker crashed, hung, or said that the side does not work. `kind` is its word for what went wrong."""

    def __init__(self, message: str, kind: str = "") -> None:
        self.kind = kind
        super().__init__(message)


class WorkerCheated(Exception):
    """The worker did what no honest side does."""


class StrayProcess(WorkerCheated):
    """A process without a parent runs beside the workers: only a candidate brings code that could have left it."""


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@dataclass
class Block:
    """One timed block as the judge saw it."""

    elapsed_ns: int
    running_ns: int  # until the worker stood still: what followed was the judge's doing
    processor_ns: int
    ready_ns: int
    pointers: tuple[int, ...]
    exchanges: int = 1

    @property
    def waiting_ns(self) -> int:
        """Time in which the worker was ready and had no processor. Neither sleeping nor threads of its own that fight
        each other make it longer: it is at most what the kernel calls waiting, and at most what it did not run."""
        return max(0, min(self.ready_ns, self.running_ns - self.processor_ns))

    @classmethod
    def joined(cls, blocks: Sequence[Block]) -> Block:
        """Several as one."""
        return cls(
            sum(block.elapsed_ns for block in blocks),
            sum(block.running_ns for block in blocks),
            sum(block.processor_ns for block in blocks),
            sum(block.ready_ns for block in blocks),
            tuple(pointer for block in blocks for pointer in block.pointers),
            sum(block.exchanges for block in blocks),
        )

    @classmethod
    def typical(cls, blocks: Sequence[Block]) -> Block:
        """Several as one, each taken for as long as the one in the middle: a host has hiccups longer than a call."""
        middle = statistics.median(block.elapsed_ns for block in blocks)
        return replace(cls.joined(blocks), elapsed_ns=round(len(blocks) * middle))


class WorkerProcess:
    """One side's process. `label` names it in messages; `scratch` is the one folder it may write to."""

    def __init__(
        self,
        label: str,
        scratch: Path,
        threads: int,
        processor: int | None,
        environment: Mapping[str, str] | None = None,
        reads: Sequence[Path] = (),
        walls_off: Mapping[str, str] | None = None,
        device: str = "cpu",
        vigil: Vigil | None = None,
        preloads: Sequence[str] = (),
    ) -> None:
        self.label = label
        self.vigil = vigil
        self.device_deadline_s = DEVICE_DEADLINE_S
        # Where processors abound the judge waits on one of its own, awake; with two, that would be the worker's.
        self.spins = device != "cpu" and len(os.sched_getaffinity(0)) >= SPARE_PROCESSORS
        self.threads = threads
        self.processor = processor
        self.scratch = scratch
        self.walls = Walls.around(scratch, reads, walls_off, for_gpu=device != "cpu")
        # A worker's orphans become ours: they cannot hide from us. Asked for each time, since no fork inherits it.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._known = set(procfs.living_children(os.getpid()))  # whoever uses the judge may have children of their own
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        # Without a name: in the worker's own folder it could be made a link to a file of the judge's.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in kill()
        self._kills_for_memory = _kills_for_memory()
        own = worker_environment(scratch, threads) | dict(environment or {})
        orders: dict[str, int | str] = {
            "processor": -1 if processor is None else processor,
            "threads": threads,
            "walls": self.walls.as_argument(),
            "device": device,
        }
        try:
            self.process = zygote_for(threads, _zygote_environment(threads), preloads).fork(
                theirs.fileno(), self._log.fileno(), own, scratch, orders
            )
        except NoZygote as reason:
            raise WorkerFailed(f"did not start: {reason}") from None
        theirs.close()
        _workers.add(self.process.pid)
        if vigil is not None:
            vigil.goes_on(self.pid)
        self._stopped = False
        self._stood_ns = self._resumed_at = 0
        self._block_s = 0.0
        self._helpers: list[int] = []
        self.isolation: dict[str, Any] = {}
        self._windows: list[int] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> None:
        answer, self._windows = self._receive_first(START_DEADLINE_S)
        self.isolation = answer.get("isolation", {})
        if self.isolation.get("processors") == "any":
            self.processor = None  # it could not be pinned, so it cannot have left its place either
        self._stop()
        self._note_standstill()

    def request(self, message: dict[str, Any], deadline_s: float, descriptors: tuple[int, ...] = ()) -> dict[str, Any]:
        """One untimed exchange. The worker runs only while it answers."""
        self._refuse_movement()
        self._resume()
        try:
            self.channel.send_json(message, descriptors)
        except TimeoutError:
            self.kill()
            raise WorkerFailed("hung: does not read the judge's messages") from None
        except ChannelClosed:
            raise WorkerFailed(self._post_mortem()) from None
        answer = self._receive_object(deadline_s)
        if answer.keys() == {"called"}:
            answer = self._receive_object(self.device_deadline_s)
        self._stop()
        self._note_standstill()
        if "error" in answer:
            raise WorkerFailed(_printable(answer["error"]), _printable(answer.get("kind", "")))
        return answer

    def run_block(
        self,
        order: Sequence[int],
        outputs: int,
        deadline_s: float,
        with_python: bool = True,
        secure: Callable[[Sequence[int]], None] | None = None,
        bring: Callable[[], None] | None = None,
        stays_awake: bool = False,
    ) -> Block:
        """`stream`, and `device` without Python: all calls back to back, one answer, the judge's clock around it.

        `secure` sees to the outputs, whose addresses it is given, before the clock stops, where a stopped worker alone
        does not show that its work is over. A worker that stays awake is not stopped: it waits for the next block with
        its eyes open, until `stand_still`; so its inputs are brought when the clock runs.
        """
        payload = struct.pack(f"<{len(order) + 1}H", with_python | stays_awake << 1, *order)
        self._refuse_movement()
        used, waited = self._processor_ns(), procfs.run_delay_ns(self.pid)
        start = _clock_ns()
        if bring is not None:
            bring()
        answer = self._exchange(payload, deadline_s)
        if not stays_awake:
            self._stop()
        running = _clock_ns() - start
        pointers = self._pointers(answer, len(order) * outputs)
        if secure is not None:
            secure(pointers)
        elapsed = _clock_ns() - start
        used, waited = self._processor_ns() - used, procfs.run_delay_ns(self.pid) - waited
        self._block_s = elapsed / 1e9
        if stays_awake:
            return Block(elapsed, elapsed, 0, waited, pointers)  # of a process that runs, the kernel's count is stale
        self._note_standstill()
        return Block(elapsed, running, used, waited, pointers)

    def stand_still(self) -> tuple[int, int]:
        """After blocks that it stayed awake for: how long that was, and the processor time that it used meanwhile."""
        if self._stopped:  # it has answered with an error, and been stopped for it
            return 0, 0
        used = self._stood_ns
        self._stop()
        awake = _clock_ns() - self._resumed_at
        self._note_standstill()
        return awake, self._stood_ns - used

    def _exchange(self, payload: bytes, deadline_s: float) -> bytes:
        try:
            self._resume()
            self.channel.send(RUN, payload)
            if self.spins:
                self.channel.await_first_byte(deadline_s)
            else:
                self._look_for_helpers()
            tag, answer = self.channel.receive(deadline_s)
        except TimeoutError:
            self.kill()
            raise WorkerFailed(f"hung: no answer within {deadline_s:.0f} s") from None
        except ChannelClosed:
            raise WorkerFailed(self._post_mortem()) from None
        except ChannelGarbled as garbled:
            raise WorkerCheated(f"sent {garbled} on the judge's pipe") from None
        if tag != DONE:
            self._stop()
            self._note_standstill()
            said = _object_or_cheat(answer)
            raise WorkerFailed(
                _printable(said.get("error", "an answer of another kind")), _printable(said.get("kind", ""))
            )
        return answer

    def _pointers(self, answer: bytes, count: int) -> tuple[int, ...]:
        if len(answer) != 8 * count:
            raise WorkerCheated(f"left {len(answer) // 8} outputs where {count} were asked for")
        return struct.unpack(f"<{count}Q", answer)

    def _look_for_helpers(self) -> None:
        """Once in a block, at an instant that nobody can foresee: a helper may be gone by the block's end.

        The judge's own processor pays for the look; where there is only one, a helper would gain nothing.
        """
        if self.processor is None or self._block_s < LEAST_LOOK_S:
            return
        ended, _, _ = select.select([self.channel.connection], [], [], self._block_s * random.SystemRandom().random())
        if not ended:
            self._helpers = self.descendants()

    def read_memory(self, address: int, into: Tensor) -> None:
        """Copies the stopped worker's memory into a contiguous tensor of the judge's.

        Memory may be of a kind that its owner serves; a stopped owner never does, so there is a deadline.
        """
        size = into.numel() * into.element_size()
        local = _Span(into.data_ptr(), size)
        remote = _Span(address, size)
        _libc.process_vm_readv.restype = ctypes.c_ssize_t
        with _watchdog.guarding(self.pid):
            got = _libc.process_vm_readv(self.pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if got < 0 and ctypes.get_errno() == errno.EPERM and self._windows:
            got = self._read_through_window(address, local)
        if got != size:
            reason = os.strerror(ctypes.get_errno()) if got < 0 else f"{got} of {size} bytes"
            raise WorkerFailed(f"an output at {address:#x} cannot be read: {reason}")

    def _read_through_window(self, address: int, local: _Span) -> int:
        """For a judge that may not look into another user's process: by the descriptor that the worker opened on its
        own memory before foreign code ran. Slower, as the kernel copies twice."""
        target = memoryview((ctypes.c_char * local.length).from_address(local.base)).cast("B")
        done = 0
        while done < local.length:
            try:
                count = os.preadv(self._windows[0], [target[done:]], address + done)
            except OSError as error:
                ctypes.set_errno(error.errno or errno.EIO)
                return -1
            if count == 0:
                break
            done += count
        return done

    def mappings(self) -> str:
        """The kernel's list of what lies where in the worker's memory."""
        try:
            return Path(f"/proc/{self.pid}/maps").read_text(errors="replace")
        except PermissionError:
            if not self._windows:
                raise
            with open(os.dup(self._windows[1]), encoding="utf-8", errors="replace") as maps:  # noqa: PTH123
                maps.seek(0)
                return maps.read()

    def _processor_ns(self) -> int:
        """Processor time of all the worker's threads so far, from the kernel's own clock of that process."""
        return time.clock_gettime_ns((~self.pid << 3) | 2)  # what clock_getcpuclockid(3) computes

    def refuse_helpers(self, block: Block) -> None:
        """A side has its granted threads and nothing else: no further cores, no processes beside it."""
        if block.processor_ns > self.threads * block.running_ns * CORE_SLACK + block.exchanges * LEAST_SLACK_NS:
            share = block.processor_ns / block.running_ns
            raise WorkerCheated(f"used {share:.1f} processors in a timed block; each side is granted {self.threads}")
        if self.processor is not None and any(own != {self.processor} for own in self._affinities()):
            raise WorkerCheated("left the processor that it was pinned to")
        if any(procfs.is_alive(pid) for pid in self._strangers()):
            raise StrayProcess("left a process running beside the timed blocks")
        if self._helpers or self.descendants():
            raise WorkerCheated("kept processes of its own running in a timed block")

    def refuse_stirring(self) -> None:
        """A stopped worker's processor time stands still, however it may have tried to end its stop."""
        ran = self._processor_ns() - self._stood_ns
        if ran <= 0:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):  # dying takes processor time too, and is no offence
            self.process.wait(DYING_S)
            raise WorkerFailed(self._post_mortem())
        raise WorkerCheated(f"ran for {ran / 1e3:.0f} us while the judge had stopped it")

    def _note_standstill(self) -> None:
        """Waits until the last thread has left its processor, and keeps the processor time used until then."""
        for thread in procfs.threads(self.pid):
            with contextlib.suppress(OSError):
                procfs.read(
                    f"/proc/{self.pid}/task/{thread}/syscall"
                )  # the kernel answers for a stopped thread only once it is off its processor
        self._stood_ns = self._processor_ns()

    def _affinities(self) -> list[set[int]]:
        found = []
        for thread in procfs.threads(self.pid):
            with contextlib.suppress(ProcessLookupError):
                found.append(os.sched_getaffinity(thread))
        return found

    def descendants(self) -> list[int]:
        """Living processes that the worker started, and orphans of a worker: those are the judge's children now."""
        found: list[int] = []
        # Once it is buried, its number may be another's.
        waiting = procfs.living_children(self.pid) if self.process.returncode is None else []
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            waiting += procfs.living_children(pid)
        return found + [pid for pid in self._orphans() if procfs.is_alive(pid)]

    def _orphans(self) -> list[int]:
        """Children of the judge, living or not, that a worker left behind: of this one's user, where it has its own."""
        user = self.walls.user
        return self._strangers() if user is None else [pid for pid in self._strangers() if _belongs_to(pid, user)]

    def _strangers(self) -> list[int]:
        """Children of the judge that it never asked for."""
        ours = self._known | _workers | zygote_pids()
        return [pid for pid in procfs.children(os.getpid()) if pid not in ours]

    def log_tail(self) -> str:
        if self._log.closed:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        data = os.pread(self._log.fileno(), 2000, max(0, size - 2000))
        return _printable(data.decode(errors="replace").strip())

    def kill(self) -> None:
        """Ends the worker and all that it started, whether or not it is still there itself."""
        user = self.walls.user
        ended = self._end_family() if user is None else set()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if user is not None:
            end_processes_of(user)
        # Orphans are ours to bury; unburied, they count towards their user's limit on processes.
        _bury(ended if user is None else self._orphans())
        _workers.discard(self.pid)
        if self.vigil is not None:
            self.vigil.stands_still(self.pid)
        self.channel.connection.close()
        self._log.close()
        while self._windows:
            os.close(self._windows.pop())

    def _end_family(self) -> set[int]:
        """Stops the worker and its descendants until all of them stand still, then ends them together. Those that stand
        still count towards the limit on processes, so that a fork bomb comes to an end. One look is not enough: who was
        told to stop may fork once more before it does."""
        ended: set[int] = set()
        stopped: set[int] = set()
        deadline = time.monotonic() + FAMILY_DEADLINE_S
        quiet_looks = 0
        while quiet_looks < 2 and time.monotonic() < deadline:
            stopped = {*self.descendants(), *([self.pid] if self.process.returncode is None else [])}
            moving = [pid for pid in stopped if not procfs.stands_still(pid)]
            _signal_all(moving, signal.SIGSTOP)
            quiet_looks = 0 if moving else quiet_looks + 1
        while stopped and time.monotonic() < deadline:
            _signal_all(stopped, signal.SIGKILL)
            ended |= stopped
            if self.process.returncode is None:
                self.process.wait()
            stopped = set(self.descendants())
        return ended - {self.pid}

    def _receive_first(self, deadline_s: float) -> tuple[dict[str, Any], list[int]]:
        """The greeting, from a worker in which only the judge's own code has run."""
        with self._telling_what_went_wrong(deadline_s):
            _, payload, descriptors = self.channel.receive_json_with_descriptors(deadline_s=deadline_s)
            return as_object(payload), descriptors

    def _receive_object(self, deadline_s: float) -> dict[str, Any]:
        with self._telling_what_went_wrong(deadline_s):
            return self.channel.receive_json(deadline_s)

    @contextlib.contextmanager
    def _telling_what_went_wrong(self, deadline_s: float) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            self.kill()
            raise WorkerFailed(f"hung: no answer within {deadline_s:.0f} s") from None
        except ChannelClosed:
            raise WorkerFailed(self._post_mortem()) from None
        except ChannelGarbled as garbled:
            raise WorkerCheated(f"sent {garbled} on the judge's pipe") from None

    def _refuse_movement(self) -> None:
        """Before a stopped worker is resumed: it must not have been so by anyone else, such as a timer of its own. The
        kernel reports to a parent when a child goes on, and when it stands still once more."""
        if not self._stopped:
            return
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        except ChildProcessError:
            raise WorkerFailed(self._post_mortem()) from None
        if pid and (os.WIFCONTINUED(status) or os.WIFSTOPPED(status)):
            raise WorkerCheated("went on while it was to stand still")
        if pid:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            raise WorkerFailed(self._post_mortem())

    def _resume(self) -> None:
        if self._stopped:
            self.refuse_stirring()
            self._resumed_at = _clock_ns()
            if self.vigil is not None:
                self.vigil.goes_on(self.pid)
            os.killpg(self.pid, signal.SIGCONT)
            self._stopped = False

    def _stop(self) -> None:
        """Returns when every thread of the worker stands still."""
        try:
            os.killpg(self.pid, signal.SIGSTOP)
            status = self._wait_stopped()
        except (ProcessLookupError, ChildProcessError):
            raise WorkerFailed(self._post_mortem()) from None
        if not os.WIFSTOPPED(status):
            self.process.returncode = os.waitstatus_to_exitcode(status)
            raise WorkerFailed(self._post_mortem())
        self._stopped = True
        if self.vigil is not None:
            self.vigil.stands_still(self.pid)

    def _wait_stopped(self) -> int:
        """Blocks, so that the worker's processor is free for the worker; the watchdog sees to the deadline."""
        end = time.monotonic() + SPIN_S
        while self.spins and time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)
            if pid:
                return status
        with _watchdog.guarding(self.pid):
            _, status = os.waitpid(self.pid, os.WUNTRACED)
        return status

    def _post_mortem(self) -> str:
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            return "closed the judge's pipe and went on running"
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        if code == -signal.SIGKILL and _kills_for_memory() > self._kills_for_memory:
            how += ", the machine was out of memory"
        tail = self.log_tail().splitlines()[-1:]
        return f"crashed: {how}" + (f" ({tail[0][:300]})" if tail else "")


def _clock_ns() -> int:
    """The clock that nobody can slew: a worker with the right to set the time could bend the other one."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def _printable(text: object) -> str:
    """A worker's words, fit for a terminal and for a record."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in str(text)[:MOST_TEXT])


def _belongs_to(pid: int, user: int) -> bool:
    try:
        return user in owners_of(pid)
    except ProcessLookupError:
        return False


def _signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _bury(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):  # a child of somebody else's
            os.waitpid(pid, os.WNOHANG)


def _kills_for_memory() -> int:
    """How often the kernel has killed a process because memory ran out, since the machine started."""
    try:
        words = Path("/proc/vmstat").read_text().split()
    except OSError:
        return 0
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0


def _object_or_cheat(payload: bytes) -> dict[str, Any]:
    try:
        return as_object(payload)
    except ChannelGarbled as garbled:
        raise WorkerCheated(f"sent {garbled} on the judge's pipe") from None


def _zygote_environment(threads: int) -> dict[str, str]:
    """What libraries read once, when they are loaded."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join(import_folders()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # Freed outputs stay in the process, as a GPU's caching allocator keeps them: otherwise whether a block pays
        # for page faults depends on how long the worker stood still before it. (torch brings mimalloc on some CPUs.)
        "MIMALLOC_PURGE_DELAY": "-1",
        "MALLOC_TRIM_THRESHOLD_": str(4 * 2**30),
        "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
        "MALLOC_ARENA_MAX": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def worker_environment(scratch: Path, threads: int) -> dict[str, str]:
    """A small environment of its own: nothing of the judge's, caches below the side's own scratch."""
    return _zygote_environment(threads) | {
        "PYTHONNOUSERSITE": "1",  # also for the Pythons that a worker starts
        "USER": "worker",  # its user has no entry in the password file, and libraries ask for a name
        "LOGNAME": "worker",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TVM_FFI_CACHE_DIR": str(scratch / "tvm-ffi"),
    }
