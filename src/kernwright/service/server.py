"""Server: a process that stays ready to judge: torch imported, the device opened, a zygote to fork workers from.

It makes one quick judgement at a time, in its main thread, as `kernwright judge --quick` makes one. No worker outlives
its judgement.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.judge.device.device import Device
from kernwright.judge.device.lock import device_lock
from kernwright.judge.device.selection import find_device
from kernwright.judge.judge_request import JudgeRequest
from kernwright.judge.process.environment import zygote_environment
from kernwright.judge.process.zygote_process import zygote_for, zygote_pids
from kernwright.judge.request import judge
from kernwright.judge.system import procfs
from kernwright.service.address import Address
from kernwright.service.connections import Connections, Job
from kernwright.service.messages import (
    Failed,
    Judged,
    PhaseBegun,
    Printed,
    ServedBy,
    ServerStatus,
    ServiceMessage,
    StepDone,
)
from kernwright.service.same_program import SameProgram

THREADS = 1  # threads per side of the zygote that is started beforehand
LOCK_WAIT_S = 600.0
LEFTOVERS_S = 20.0


class Server:
    """The server of one device.

    Args:
        device: `cpu`, `cuda` or `cuda:N`.
        idle_s: the server ends after this many seconds without a request.
        say: receives lines for the person who started it.
    """

    def __init__(self, device: str, idle_s: float, say: Callable[[str], None]) -> None:
        self._address, self._idle_s, self._say = Address(device), idle_s, say
        self._judgements = 0
        self._connections: Connections | None = None
        self._device: Device | None = None
        self._is_waiting = self._is_judging = self._is_stopped = False

    def run(self) -> None:
        """Serve until no request came for the idle time, or until Ctrl-C."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)
        program = SameProgram.here()
        with contextlib.suppress(KeyboardInterrupt), self._address.listening() as (listener, record):
            self._is_waiting = True  # Ctrl-C ends it from here on
            processor = self._warm_up()
            connections = self._connections = Connections(listener, record.token, program, self.status, processor)
            connections.start()
            self._say(f"serving {self._address.device} at {self._address.socket_path} (process {record.pid})")
            try:
                self._serve(connections)
            finally:
                self._is_waiting = False
                connections.end()
        self._say(f"the server ended after {self._judgements} judgement{'' if self._judgements == 1 else 's'}")

    def status(self) -> ServerStatus:
        """Return what the server is doing. The connections add what waits."""
        return ServerStatus(
            process=os.getpid(),
            device=self._address.device,
            judgements=self._judgements,
            waiting=0,
            judging=False,
            zygotes=tuple(sorted(zygote_pids())),
        )

    def _warm_up(self) -> int | None:
        """Open the device and start a zygote. Return the processor that connections must avoid."""
        with device_lock(self._address.device, LOCK_WAIT_S):  # another judge must not be disturbed while it times
            self._device = find_device(self._address.device)
            zygote_for(THREADS, zygote_environment(THREADS))
        return self._device.worker_processor() if self._device.has_kernels else None

    def _serve(self, connections: Connections) -> None:
        while not self._is_stopped:
            self._is_waiting = True
            job = connections.next_job(self._idle_s)
            self._is_waiting = False
            if job is None:
                self._say(f"no request for {self._idle_s / 60:g} minutes")
                return
            answer = self._answer(connections, job)
            self._judgements += 1
            end_leftovers()
            connections.finish(job, answer)
            self._free_memory()

    def _answer(self, connections: Connections, job: Job) -> ServiceMessage:
        """Judge a job. If it raises an error, the error becomes the answer."""
        try:
            try:
                self._is_judging = True
                if job.cancelled:
                    raise KeyboardInterrupt
                verdict = judge(self._request(connections, job), StreamedProgress(connections, job))
            finally:
                self._is_judging = False
        except KeyboardInterrupt:
            self._is_judging = False
            self._is_stopped |= not job.cancelled
            return Failed(cause="the judgement was interrupted", remedy="run the command again")
        except KernwrightError as error:
            self._is_stopped |= self._is_device_broken()
            is_environment = isinstance(error, EnvironmentProblem)
            return Failed(cause=error.cause, remedy=error.remedy, is_environment=is_environment)
        except Exception as error:
            self._is_stopped = True  # the state of this process is unknown
            cause = f"unexpected error in the server, which ends: {type(error).__name__}: {error}"
            return Failed(cause=cause, remedy="run the command again; it is judged without the server")
        self._is_stopped |= verdict.interrupted and not job.cancelled  # Ctrl-C at the server
        served = ServedBy(process=os.getpid(), judgement=self._judgements + 1, zygotes=tuple(sorted(zygote_pids())))
        return Judged(verdict=verdict.model_dump(mode="json"), served=served)

    def _is_device_broken(self) -> bool:
        """Return whether a candidate has broken this process's context on the GPU. A new process is needed then."""
        return self._device is not None and self._device.health() is not None

    def _free_memory(self) -> None:
        """Return the device memory of a judgement, which other programs may need while the server waits."""
        gc.collect()
        if self._device is None or self._is_stopped:
            return
        try:
            self._device.free_bytes()
        except RuntimeError as error:  # the context on the GPU is broken
            self._say(f"the device fails: {error}")
            self._is_stopped = True

    def _request(self, connections: Connections, job: Job) -> JudgeRequest:
        """Return the request as the judge takes it. It also counts kernels, which is cheap in a warm judge."""

        def show(text: str) -> None:
            connections.tell(job, Printed(text=text))

        census = True if job.request.census is None else job.request.census
        return replace(job.request, census=census, output=show if job.shows_output else None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C at the server's terminal, and the cancellation of a job, which arrives as the same signal.

        While the rounds of a judgement run, the judge's own handler is in place.
        """
        job = self._connections.current if self._connections else None
        is_cancellation = job is not None and job.cancelled
        self._is_stopped |= not is_cancellation
        if self._is_judging or (self._is_waiting and not is_cancellation):
            raise KeyboardInterrupt


def end_leftovers() -> None:
    """End the children that an interrupted judgement left behind, such as a worker that was just being forked."""
    deadline = time.monotonic() + LEFTOVERS_S
    while left := set(procfs.living_children(os.getpid())) - zygote_pids():
        if time.monotonic() > deadline:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


class StreamedProgress:
    """Progress of a judgement, sent to its client."""

    def __init__(self, connections: Connections, job: Job) -> None:
        self._connections, self._job = connections, job

    def phase(self, what: str, steps: int) -> None:
        self._connections.tell(self._job, PhaseBegun(what=what, steps=steps))

    def step(self, note: str) -> None:
        self._connections.tell(self._job, StepDone(note=note))
