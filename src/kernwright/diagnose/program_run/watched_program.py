"""WatchedProgram: a program whose output passes through the native gate, and that ends with all its children."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, cast

from kernwright.core.errors import EnvironmentProblem
from kernwright.diagnose.program_run.native_gate import SGLANG_SIGNS, NativeGate, Sign
from kernwright.diagnose.program_run.passed_output import SILENCE_S, PassedOutput
from kernwright.diagnose.program_run.process_tree import (
    adopting_orphans,
    reap_orphans,
    running_descendants,
    signal_all,
)
from kernwright.diagnose.program_run.signal_listener import SignalListener

GRACE_S = 10.0  # time for processes that were asked to end
LINGER_S = 2.0  # time for children that the program left running
ENDING = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class ProgramEnding:
    """The end of a program.

    Attributes:
        status: exit status, or minus the number of the signal that ended it.
        seconds: from its start to its end.
        sign: the line of output that closed the native gate, or "".
        interrupted: the signal that made this process end the program, or 0.
        left_running: number of processes that outlived the program and were ended.
    """

    status: int
    seconds: float
    sign: str = ""
    interrupted: int = 0
    left_running: int = 0


def run_watched(
    command: Sequence[str], environment: Mapping[str, str], signs: Sequence[Sign] = SGLANG_SIGNS
) -> ProgramEnding:
    """Run a program and pass its output on. The first sign ends it with all its children.

    The program keeps standard input and the process group, so that it can use the terminal. Call it from the main
    thread, because it blocks signals.
    """
    with adopting_orphans():
        return WatchedProgram(command, environment, signs).watch()


class WatchedProgram:
    """A running program. `watch` may be called once."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], signs: Sequence[Sign]) -> None:
        self._spared = frozenset(running_descendants(os.getpid()))
        self._sign = ""
        self._interrupted = 0
        self._left_running = 0
        self._ended_at: float | None = None
        self._all_ended = False  # whether no process was running before the last wait for output
        self._end_by: float | None = None  # when the processes that still run are asked to end, or killed
        self._is_asked = False
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError, OSError):
                stream.flush()
        self._heard = {*ENDING, signal.SIGCHLD}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._heard)
        self._started_at = time.perf_counter()
        self._process = self._start(command, environment)
        streams = ((self._process.stdout, 1), (self._process.stderr, 2))
        self._outputs = [PassedOutput(cast(IO[bytes], source), target, NativeGate(signs)) for source, target in streams]

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                list(command),
                env=dict(environment),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, self._mask),
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            raise EnvironmentProblem(
                f"{command[0]} cannot be run: {error.strerror}", "write the program after -- as a shell would find it"
            ) from None

    def watch(self) -> ProgramEnding:
        """Pass the output on until the program has ended. Then end the processes that it left running."""
        listener = SignalListener(self._heard)
        try:
            self._follow(listener)
        finally:
            self._kill_all()
            listener.stop()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        return ProgramEnding(
            status=-signal.SIGKILL if self._process.returncode is None else self._process.returncode,
            seconds=(self._ended_at or time.perf_counter()) - self._started_at,
            sign=self._sign,
            interrupted=self._interrupted,
            left_running=self._left_running,
        )

    def _follow(self, listener: SignalListener) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listener.pipe, selectors.EVENT_READ)
            for output in self._outputs:
                selector.register(output.source, selectors.EVENT_READ, output)
            while True:
                ready = selector.select(SILENCE_S)
                for key, _ in ready:
                    if key.data is None:
                        self._hear(listener)
                    else:
                        self._note(key.data.take())
                        if not key.data.is_open:
                            selector.unregister(key.fileobj)
                self._settle()
                if self._is_over(bool(ready)):
                    return
                self._press()

    def _note(self, sign: str | None) -> None:
        self._sign = self._sign or sign or ""

    def _settle(self) -> None:
        for output in self._outputs:
            self._note(output.settle())
            if not output.is_read and not self._interrupted:
                self._interrupted = signal.SIGPIPE

    def _hear(self, listener: SignalListener) -> None:
        for number, is_from_terminal in listener.take():
            if number == signal.SIGCHLD:
                continue
            if self._interrupted:
                self._end_by = time.monotonic()  # a second signal: do not wait any longer
                self._is_asked = True
            self._interrupted = self._interrupted or number
            if is_from_terminal:  # the terminal has sent it to the program's processes, too
                self._ask(None)

    def _is_over(self, is_busy: bool) -> bool:
        """Return whether the program has ended, nothing that it started still runs, and all output was read."""
        if self._process.poll() is None:
            return False
        self._ended_at = self._ended_at or time.perf_counter()
        reap_orphans(self._spared)
        if self._running():
            return False
        if not any(output.is_open for output in self._outputs):
            return True
        # The last process may have written after the wait for output. So one more wait is needed, which starts now.
        had_ended, self._all_ended = self._all_ended, True
        return had_ended and not is_busy

    def _press(self) -> None:
        """Ask the running processes to end when their time is over. Kill those that take too long."""
        now = time.monotonic()
        if not self._is_asked:
            if self._sign or self._interrupted:
                is_passed_on = self._interrupted in ENDING and not self._sign
                self._ask(signal.Signals(self._interrupted) if is_passed_on else signal.SIGTERM)
            elif self._ended_at is not None and self._end_by is None:
                self._end_by = now + LINGER_S
            elif self._end_by is not None and now >= self._end_by:
                self._left_running = len(self._running())
                self._ask(signal.SIGTERM)
        elif self._end_by is not None and now >= self._end_by:
            signal_all(self._running(), signal.SIGKILL)

    def _ask(self, number: signal.Signals | None) -> None:
        self._is_asked = True
        self._end_by = time.monotonic() + GRACE_S
        if number is not None:
            signal_all(self._running(), number)

    def _running(self) -> list[int]:
        return running_descendants(os.getpid(), self._spared)

    def _kill_all(self) -> None:
        give_up_at = time.monotonic() + GRACE_S  # the kernel keeps a process whose driver hangs
        while (running := self._running()) and time.monotonic() < give_up_at:
            signal_all(running, signal.SIGKILL)
            time.sleep(0.01)
        self._process.poll()
        reap_orphans(self._spared)
