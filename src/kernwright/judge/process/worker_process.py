"""The judge's handle on one worker: spawn, ask, run a block under the judge's clock, freeze, read its memory, kill.

Between requests a worker is stopped (SIGSTOP). Inputs are written while it is stopped and the clock starts before it is
resumed, so no part of a block's work can be done early; the clock stops after the worker is stopped again, so none can
be done late. What lies in its memory then is what the block produced. A process may know ways to end its own stop; its
processor time gives it away.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernwright.judge.process.block import Block
from kernwright.judge.process.cpu_keepalive import CpuKeepalive
from kernwright.judge.process.environment import worker_environment, zygote_environment
from kernwright.judge.process.faults import StrayProcess, WorkerCheated, WorkerFailed
from kernwright.judge.process.log import WorkerLog
from kernwright.judge.process.memory import WorkerMemory
from kernwright.judge.process.process_tree import ProcessTree, adopt_orphans
from kernwright.judge.process.watchdog import watchdog
from kernwright.judge.process.zygote_process import NoZygote, zygote_for
from kernwright.judge.protocol.channel import Channel, ChannelClosed, ChannelGarbled, as_object
from kernwright.judge.protocol.frames import (
    DONE,
    IS_AWAKE,
    RUN,
    STAYS_AWAKE,
    WITH_PYTHON,
    decode_pointers,
    encode_block,
)
from kernwright.judge.protocol.isolation import Isolation
from kernwright.judge.protocol.messages import CALLED, AnswerT, Failure, Ready, Request, decode_answer, printable
from kernwright.judge.protocol.orders import WorkerOrders
from kernwright.judge.system import procfs
from kernwright.judge.system.processors import SPARE_PROCESSORS
from kernwright.judge.system.sandbox import Sandbox

START_DEADLINE_S = 120.0
CALL_DEADLINE_S = 120.0  # of one untimed call, which may compile
BUILD_DEADLINE_S = 300.0
DEVICE_DEADLINE_S = 30.0  # what a call has started must be over by then
DYING_S = 0.5
CORE_SLACK = 1.05  # processor time over elapsed time that one granted thread may show
LEAST_SLACK_NS = 50_000
SPIN_S = 0.5
LEAST_LOOK_S = 0.001  # no process can be started and be of use in a block shorter than this


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
        disabled_walls: Mapping[str, str] | None = None,
        device: str = "cpu",
        keepalive: CpuKeepalive | None = None,
        preloads: Sequence[str] = (),
        roams: bool = False,
        block_loop: Path | None = None,
    ) -> None:
        self.label = label
        self.keepalive = keepalive
        self.device_deadline_s = DEVICE_DEADLINE_S
        # Where processors abound the judge waits on one of its own, awake; with two, that would be the worker's.
        self.spins = device != "cpu" and len(os.sched_getaffinity(0)) >= SPARE_PROCESSORS
        self.threads = threads
        self.processor = processor
        self.scratch = scratch
        if block_loop is not None:
            reads = (*reads, block_loop.parent)
        self.sandbox = Sandbox.around(scratch, reads, disabled_walls, for_gpu=device != "cpu")
        known = adopt_orphans()
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self.log = WorkerLog()
        own = worker_environment(scratch, threads) | dict(environment or {})
        orders = WorkerOrders(
            threads=threads,
            sandbox=self.sandbox.as_argument(),
            device=device,
            processor=processor,
            roams=roams,
            block_loop=str(block_loop or ""),
        )
        try:
            self.process = zygote_for(threads, zygote_environment(threads), preloads).fork(
                theirs.fileno(), self.log.descriptor, own, scratch, orders
            )
        except NoZygote as reason:
            raise WorkerFailed(f"did not start: {reason}") from None
        theirs.close()
        self.tree = ProcessTree(self.process, known, self.sandbox.user)
        self.memory = WorkerMemory(self.pid)
        if keepalive is not None:
            keepalive.goes_on(self.pid)
        self._stopped = False
        self._stood_ns = self._resumed_at = 0
        self.request_ns = 0  # processor time of the last untimed exchange
        self._block_s = 0.0
        self._helpers: list[int] = []
        self.isolation = Isolation()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> None:
        ready, self.memory.windows = self._receive_first(START_DEADLINE_S)
        self.isolation = ready.isolation
        if self.isolation.processors == "any":
            self.processor = None  # it could not be pinned, so it cannot have left its place either
        self._stop()
        self._note_standstill()

    def request(
        self, message: Request, kind: type[AnswerT], deadline_s: float, descriptors: tuple[int, ...] = ()
    ) -> AnswerT:
        """Exchange one untimed request for an answer of the given kind. The worker runs only while it answers."""
        stood_ns = self._stood_ns
        self.ask(message, descriptors)
        answer = self.answer(kind, deadline_s)
        self.request_ns = self._stood_ns - stood_ns
        return answer

    def ask(self, message: Request, descriptors: tuple[int, ...] = ()) -> None:
        """Send a request and let the worker run until it has answered."""
        self._refuse_movement()
        self._resume()
        try:
            self.channel.send_json(message.model_dump(), descriptors)
        except TimeoutError:
            self.kill()
            raise WorkerFailed("hung: does not read the judge's messages") from None
        except ChannelClosed:
            raise WorkerFailed(self._post_mortem()) from None

    def answer(self, kind: type[AnswerT], deadline_s: float) -> AnswerT:
        """Wait for the answer to a request, stop the worker and validate what it sent."""
        answer = self._receive_object(deadline_s)
        if answer.keys() == CALLED.keys():
            answer = self._receive_object(self.device_deadline_s)
        self._stop()
        self._note_standstill()
        return accept_answer(kind, answer)

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
        flags = with_python * WITH_PYTHON | stays_awake * STAYS_AWAKE | (not self._stopped) * IS_AWAKE
        payload = encode_block(flags, order)
        self._refuse_movement()
        used, (ran, ready) = self._processor_ns(), procfs.scheduled_ns(self.pid)
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
        used, (ran_now, ready_now) = self._processor_ns() - used, procfs.scheduled_ns(self.pid)
        by_itself = max(0, used - (ran_now - ran))  # its other threads': who waits for these is kept by nobody else
        waited = max(0, ready_now - ready - by_itself)
        self._block_s = elapsed / 1e9
        if stays_awake:
            return Block(
                elapsed_ns=elapsed, running_ns=elapsed, processor_ns=0, ready_ns=waited, pointers=pointers
            )  # of a process that runs, the kernel's count is stale
        self._note_standstill()
        return Block(elapsed_ns=elapsed, running_ns=running, processor_ns=used, ready_ns=waited, pointers=pointers)

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
            self.channel.send(RUN, payload)  # first: a worker that goes on and finds no order goes to sleep again
            self._resume()
            if self.spins:
                tag, answer, _ = self.channel.await_frame(deadline_s)
            else:
                self._look_for_helpers()
                tag, answer = self.channel.receive(deadline_s)
        except TimeoutError:
            self.kill()
            raise WorkerFailed(f"hung: no answer within {deadline_s:.0f} s") from None
        except ChannelClosed:
            raise WorkerFailed(self._post_mortem()) from None
        except ChannelGarbled as garbled:
            raise _cheated(garbled) from None
        if tag != DONE:
            self._stop()
            self._note_standstill()
            with _cheated_if_garbled():
                said = as_object(answer)
            raise _failed({"error": "an answer of another kind"} | said)
        return answer

    def _pointers(self, answer: bytes, count: int) -> tuple[int, ...]:
        if len(answer) != 8 * count:
            raise WorkerCheated(f"left {len(answer) // 8} outputs where {count} were asked for")
        return decode_pointers(answer)

    def _look_for_helpers(self) -> None:
        """Once in a block, at an instant that nobody can foresee: a helper may be gone by the block's end.

        The judge's own processor pays for the look; where there is only one, a helper would gain nothing.
        """
        if self.processor is None or self._block_s < LEAST_LOOK_S:
            return
        ended, _, _ = select.select([self.channel.connection], [], [], self._block_s * random.SystemRandom().random())
        if not ended:
            self._helpers = self.tree.descendants()

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
        if any(procfs.is_alive(pid) for pid in self.tree.strangers()):
            raise StrayProcess("left a process running beside the timed blocks")
        if self._helpers or self.tree.offspring():  # orphans would have been strangers
            raise WorkerCheated("kept processes of its own running in a timed block")

    def refuse_company(self) -> None:
        """While a worker stands still nobody may work in its place. One that has no living process beside it now has
        none until it goes on: who would be gone by the end of the next block, or by its beginning, is seen here."""
        if any(procfs.is_alive(pid) for pid in self.tree.strangers()):
            raise StrayProcess("left a process running beside the timed blocks")
        if self.tree.offspring():
            raise WorkerCheated("kept processes of its own running while it stood still")

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

    def kill(self) -> None:
        """Ends the worker and all that it started, whether or not it is still there itself."""
        self.tree.end()
        if self.keepalive is not None:
            self.keepalive.stands_still(self.pid)
        self.channel.connection.close()
        self.log.close()
        self.memory.close()

    def _receive_first(self, deadline_s: float) -> tuple[Ready, list[int]]:
        """The greeting, from a worker in which only the judge's own code has run."""
        with self._telling_what_went_wrong(deadline_s):
            _, payload, descriptors = self.channel.receive_json_with_descriptors(deadline_s=deadline_s)
            return decode_answer(Ready, as_object(payload)), descriptors

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
            raise _cheated(garbled) from None

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
            if self.keepalive is not None:
                self.keepalive.goes_on(self.pid)
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
        if self.keepalive is not None:
            self.keepalive.stands_still(self.pid)

    def _wait_stopped(self) -> int:
        """Blocks, so that the worker's processor is free for the worker; the watchdog sees to the deadline."""
        end = time.monotonic() + SPIN_S
        while self.spins and time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)
            if pid:
                return status
        with watchdog.guarding(self.pid):
            _, status = os.waitpid(self.pid, os.WUNTRACED)
        return status

    def _post_mortem(self) -> str:
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            return "closed the judge's pipe and went on running"
        return self.log.post_mortem(code)


def _clock_ns() -> int:
    """The clock that nobody can slew: a worker with the right to set the time could bend the other one."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def accept_answer(kind: type[AnswerT], answer: dict[str, Any]) -> AnswerT:
    """Return a worker's answer as the expected kind. Raise `WorkerFailed` for an error, `WorkerCheated` for garbage."""
    if "error" in answer:
        raise _failed(answer)
    with _cheated_if_garbled():
        return decode_answer(kind, answer)


def _failed(answer: dict[str, Any]) -> WorkerFailed:
    failure = Failure.model_validate(answer)
    return WorkerFailed(printable(failure.error), printable(failure.kind))


def _cheated(garbled: ChannelGarbled) -> WorkerCheated:
    return WorkerCheated(f"sent {garbled} on the judge's pipe")


@contextlib.contextmanager
def _cheated_if_garbled() -> Iterator[None]:
    try:
        yield
    except ChannelGarbled as garbled:
        raise _cheated(garbled) from None
