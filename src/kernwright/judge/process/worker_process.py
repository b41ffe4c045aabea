"""WorkerProcess: the judge's handle on one worker. It starts, asks, times, stops and kills the worker.

Between requests a worker is stopped (SIGSTOP). Inputs are written while it is stopped, and the clock starts before it
is resumed, so no part of a block's work can be done early. The clock stops after the worker is stopped again, so none
can be done late. A process that ends its stop by itself is detected by its processor time.
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

from kernwright.judge.process.answers import accept_answer, cheated, failure_of_payload
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
from kernwright.judge.protocol.deadlines import DEVICE_DEADLINE_S
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
from kernwright.judge.protocol.messages import CALLED, AnswerT, Ready, Request, decode_answer
from kernwright.judge.protocol.orders import WorkerOrders
from kernwright.judge.system import procfs
from kernwright.judge.system.processors import SPARE_PROCESSORS
from kernwright.judge.system.sandbox import Sandbox

START_DEADLINE_S = 120.0
CALL_DEADLINE_S = 120.0  # limit of one untimed call, which may compile
BUILD_DEADLINE_S = 300.0
DYING_S = 0.5
CORE_SLACK = 1.05  # tolerated ratio of processor time to elapsed time per granted thread
LEAST_SLACK_NS = 50_000
SPIN_S = 0.5
LEAST_LOOK_S = 0.001  # a helper process cannot start and be of use in a shorter block


class WorkerProcess:
    """The process of one side. `label` names it in messages; `scratch` is the only folder that it may write to."""

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
        output: Callable[[str], None] | None = None,
    ) -> None:
        self.label = label
        self.keepalive = keepalive
        self.device_deadline_s = DEVICE_DEADLINE_S
        # With enough processors the judge spins while it waits. With two it would take the worker's.
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
        self.log = WorkerLog(output)
        own = worker_environment(scratch, threads) | dict(environment or {})
        orders = WorkerOrders(
            threads=threads,
            sandbox=self.sandbox.as_argument(),
            device=device,
            processor=processor,
            roams=roams,
            block_loop=str(block_loop or ""),
            unbuffered=output is not None,
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
        self.calls = 0  # calls that the process has made, on all rows
        self._block_s = 0.0
        self._helpers: list[int] = []
        self.isolation = Isolation()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> None:
        """Wait for the worker's first message, record its isolation and stop it."""
        ready, self.memory.windows = self._receive_first(START_DEADLINE_S)
        self.isolation = ready.isolation
        if self.isolation.processors == "any":
            self.processor = None  # it could not be pinned, so leaving the processor is no offence
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
        """Run a block of calls back to back, with one answer, and time it with the judge's clock.

        `secure` gets the addresses of the outputs and secures them before the clock stops, for devices whose work may
        go on after the worker was stopped. A worker that stays awake is not stopped but polls for the next block until
        `stand_still`. Its inputs are therefore written by `bring` while the clock runs.
        """
        flags = with_python * WITH_PYTHON | stays_awake * STAYS_AWAKE | (not self._stopped) * IS_AWAKE
        payload = encode_block(flags, order)
        self._refuse_movement()
        used, (ran, ready) = self._processor_ns(), procfs.scheduled_ns(self.pid)
        start = _clock_ns()
        if bring is not None:
            bring()
        answer = self._exchange(payload, deadline_s)
        self.calls += len(order)
        if not stays_awake:
            self._stop()
        running = _clock_ns() - start
        pointers = self._pointers(answer, len(order) * outputs)
        if secure is not None:
            secure(pointers)
        elapsed = _clock_ns() - start
        used, (ran_now, ready_now) = self._processor_ns() - used, procfs.scheduled_ns(self.pid)
        by_itself = max(0, used - (ran_now - ran))  # its other threads: waiting for these is the worker's doing
        waited = max(0, ready_now - ready - by_itself)
        self._block_s = elapsed / 1e9
        if stays_awake:
            return Block(
                elapsed_ns=elapsed, running_ns=elapsed, processor_ns=0, ready_ns=waited, pointers=pointers
            )  # the kernel's count of a running process is stale
        self._note_standstill()
        return Block(elapsed_ns=elapsed, running_ns=running, processor_ns=used, ready_ns=waited, pointers=pointers)

    def stand_still(self) -> tuple[int, int]:
        """Stop a worker that stayed awake. Return how long it was awake and the processor time that it used."""
        if self._stopped:  # it was stopped when it answered with an error
            return 0, 0
        used = self._stood_ns
        self._stop()
        awake = _clock_ns() - self._resumed_at
        self._note_standstill()
        return awake, self._stood_ns - used

    def _exchange(self, payload: bytes, deadline_s: float) -> bytes:
        try:
            self.channel.send(RUN, payload)  # before it is resumed: a worker that finds no request goes to sleep
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
            raise cheated(garbled) from None
        if tag != DONE:
            self._stop()
            self._note_standstill()
            raise failure_of_payload(answer)
        return answer

    def _pointers(self, answer: bytes, count: int) -> tuple[int, ...]:
        if len(answer) != 8 * count:
            raise WorkerCheated(f"left {len(answer) // 8} outputs where {count} were asked for")
        return decode_pointers(answer)

    def _look_for_helpers(self) -> None:
        """Look for helper processes once per block at a random instant, because they may be gone at its end.

        The look costs time on the judge's processor. With a single processor a helper would gain nothing.
        """
        if self.processor is None or self._block_s < LEAST_LOOK_S:
            return
        ended, _, _ = select.select([self.channel.connection], [], [], self._block_s * random.SystemRandom().random())
        if not ended:
            self._helpers = self.tree.descendants()

    def _processor_ns(self) -> int:
        """Return the processor time of all threads of the worker so far, from the kernel's clock of that process."""
        return time.clock_gettime_ns((~self.pid << 3) | 2)  # the clock id that clock_getcpuclockid(3) returns

    def refuse_helpers(self, block: Block) -> None:
        """Raise `WorkerCheated` if the worker used further cores, left its processor or kept processes running."""
        if block.processor_ns > self.threads * block.running_ns * CORE_SLACK + block.exchanges * LEAST_SLACK_NS:
            share = block.processor_ns / block.running_ns
            raise WorkerCheated(f"used {share:.1f} processors in a timed block; each side is granted {self.threads}")
        if self.processor is not None and any(own != {self.processor} for own in self._affinities()):
            raise WorkerCheated("left the processor that it was pinned to")
        if any(procfs.is_alive(pid) for pid in self.tree.strangers()):
            raise StrayProcess("left a process running beside the timed blocks")
        if self._helpers or self.tree.offspring():  # orphans are among the strangers
            raise WorkerCheated("kept processes of its own running in a timed block")

    def refuse_company(self) -> None:
        """Raise `WorkerCheated` if a process of this worker lives while the worker is stopped.

        A stopped worker cannot start a process. So a process that would be gone at the end of the next block, or at its
        beginning, is seen here.
        """
        if any(procfs.is_alive(pid) for pid in self.tree.strangers()):
            raise StrayProcess("left a process running beside the timed blocks")
        if self.tree.offspring():
            raise WorkerCheated("kept processes of its own running while it stood still")

    def refuse_stirring(self) -> None:
        """Raise `WorkerCheated` if the processor time of the stopped worker has increased."""
        ran = self._processor_ns() - self._stood_ns
        if ran <= 0:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):  # a dying process uses processor time too
            self.process.wait(DYING_S)
            raise WorkerFailed(self._post_mortem())
        raise WorkerCheated(f"ran for {ran / 1e3:.0f} us while the judge had stopped it")

    def _note_standstill(self) -> None:
        """Wait until the last thread has left its processor, and note the processor time used until then."""
        for thread in procfs.threads(self.pid):
            with contextlib.suppress(OSError):
                # The kernel answers only when a stopped thread has left its processor.
                procfs.read(f"/proc/{self.pid}/task/{thread}/syscall")
        self._stood_ns = self._processor_ns()

    def _affinities(self) -> list[set[int]]:
        found = []
        for thread in procfs.threads(self.pid):
            with contextlib.suppress(ProcessLookupError):
                found.append(os.sched_getaffinity(thread))
        return found

    def kill(self) -> None:
        """End the worker and all processes that it started, whether or not the worker still runs."""
        self.tree.end()
        if self.keepalive is not None:
            self.keepalive.stands_still(self.pid)
        self.channel.connection.close()
        self.log.close()
        self.memory.close()

    def _receive_first(self, deadline_s: float) -> tuple[Ready, list[int]]:
        """Return the first message of a worker in which only our code has run, and its memory descriptors."""
        with self._telling_what_went_wrong(deadline_s):
            _, payload, descriptors = self.channel.receive_json_with_descriptors(deadline_s=deadline_s)
            return decode_answer(Ready, as_object(payload)), descriptors

    def _receive_object(self, deadline_s: float) -> dict[str, Any]:
        with self._telling_what_went_wrong(deadline_s):
            return self.channel.receive_json(deadline_s)

    @contextlib.contextmanager
    def _telling_what_went_wrong(self, deadline_s: float) -> Iterator[None]:
        """Turn errors of the channel into faults of the worker."""
        try:
            yield
        except TimeoutError:
            self.kill()
            raise WorkerFailed(f"hung: no answer within {deadline_s:.0f} s") from None
        except ChannelClosed:
            raise WorkerFailed(self._post_mortem()) from None
        except ChannelGarbled as garbled:
            raise cheated(garbled) from None

    def _refuse_movement(self) -> None:
        """Raise `WorkerCheated` if the stopped worker was resumed by anything but the judge, such as a timer.

        The kernel reports to the parent when a child continues and when it stops again.
        """
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
        """Stop the worker. Return when all of its threads are stopped."""
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
        """Return the wait status of the stopped worker. The wait blocks, with a deadline by the watchdog."""
        end = time.monotonic() + SPIN_S
        while self.spins and time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)
            if pid:
                return status
        with watchdog.guarding(self.pid):
            _, status = os.waitpid(self.pid, os.WUNTRACED)
        return status

    def _post_mortem(self) -> str:
        """Return how the worker ended."""
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            return "closed the judge's pipe and went on running"
        return self.log.post_mortem(code)


def _clock_ns() -> int:
    """Return the raw monotonic clock, which a process with the right to set the time cannot slew."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
