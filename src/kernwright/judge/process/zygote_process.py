"""ZygoteProcess: the judge's handle on the zygote and on the workers that it forks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernwright.judge.protocol.channel import Channel, ChannelClosed, ChannelGarbled
from kernwright.judge.protocol.messages import AnswerT, Fork, Forked, ZygoteStarted, decode_answer
from kernwright.judge.protocol.orders import WorkerOrders

START_DEADLINE_S = 120.0
FORK_DEADLINE_S = 30.0
NO_DRIVER = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}  # otherwise a module that asks torch for a GPU starts the driver


class NoZygote(Exception):
    """The zygote did not start, or does not answer."""


class SpoiltZygote(Exception):
    """A module that it imported has started the GPU's driver, which does not survive a fork."""

    def __init__(self, module: str) -> None:
        super().__init__(module)
        self.module = module


class ForkedProcess:
    """A worker that the zygote forked and the judge adopted, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.0005
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Zygote:
    """A process that forks workers with a given number of threads."""

    def __init__(self, environment: Mapping[str, str], preloads: Sequence[str] = ()) -> None:
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        self._awaits_answer = True
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            [
                # -P and -s: import nothing from the current folder or from the user's site folder.
                sys.executable, "-P", "-s", "-m", "kernwright.judge.worker.zygote",
                str(theirs.fileno()), str(os.getpid()),
                *preloads,
            ],
            env=dict(environment) | NO_DRIVER, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            pass_fds=(theirs.fileno(),), start_new_session=True,
        )  # fmt: skip
        theirs.close()
        try:
            if module := self._answer(ZygoteStarted, START_DEADLINE_S).spoilt_by:
                raise SpoiltZygote(module)
        except BaseException:  # also after Ctrl-C, because nobody else knows the process
            self.end()
            raise
        self._awaits_answer = False

    @property
    def is_usable(self) -> bool:
        """Return whether it lives and has answered every request. After Ctrl-C its next answer may be an old one."""
        return self.process.poll() is None and not self._awaits_answer

    def _answer(self, kind: type[AnswerT], deadline_s: float) -> AnswerT:
        try:
            return decode_answer(kind, self._channel.receive_json(deadline_s))
        except (TimeoutError, ChannelClosed, ChannelGarbled):
            self._log.seek(0)
            last = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
            raise NoZygote(last[0] if last else "no answer") from None

    def fork(
        self, worker_end: int, log: int, environment: Mapping[str, str], folder: Path, orders: WorkerOrders
    ) -> ForkedProcess:
        """Return a new worker, which has the other end of `worker_end` and writes to `log`."""
        message = Fork(environment=dict(environment), folder=str(folder), orders=orders)
        self._awaits_answer = True
        try:
            self._channel.send_json(message.model_dump(), (worker_end, log))
        except ChannelClosed:
            raise NoZygote("it is gone") from None
        worker = ForkedProcess(self._answer(Forked, FORK_DEADLINE_S).pid)
        self._awaits_answer = False
        return worker

    def end(self) -> None:
        self._channel.connection.close()
        self.process.kill()
        self.process.wait()
        self._log.close()


_zygotes: dict[tuple[int, int, str, Sequence[str]], Zygote] = {}
_spoiling: set[str] = set()  # modules that start the GPU's driver


def zygote_for(threads: int, environment: Mapping[str, str], preloads: Sequence[str] = ()) -> Zygote:
    """Return this process's zygote that has imported these modules. Start one if there is none or if it died.

    Modules that start the GPU's driver are left out; workers import them by themselves.
    """
    fit = tuple(module for module in preloads if module not in _spoiling)
    key = (os.getpid(), threads, environment.get("PYTHONPATH", ""), fit)
    known = _zygotes.get(key)
    if known is None or not known.is_usable:
        if known is not None:
            known.end()
        try:
            known = _zygotes[key] = Zygote(environment, fit)
        except SpoiltZygote as spoilt:
            _spoiling.add(spoilt.module)
            return zygote_for(threads, environment, preloads)
    return known


def zygote_pids() -> set[int]:
    return {zygote.process.pid for zygote in _zygotes.values()}
