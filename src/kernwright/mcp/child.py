"""Child: a process of the server for work that takes long or may crash. It never outlives its tool call."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

import anyio
from anyio.abc import Process

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.diagnose.program_run.process_tree import running_descendants, signal_all

STOP_DEADLINE_S = 25.0  # longer than the child's own deadline
MOST_OUTPUT = 64 << 20  # bytes of a line or of an answer
LAST_WORDS = 4000  # bytes at the end of standard error that are read
PRINTED = "kernwright: "  # the start of an error of the command line
MOST_CPU_S = 600  # limits of a child that reads a file of a client, which may unpack to any size
MOST_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
logger = logging.getLogger(__name__)


class Child:
    """A running child, which reads one line from standard input and answers on standard output."""

    def __init__(self, process: Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._left = bytearray()

    async def line(self) -> bytes | None:
        """Return the next line of the output; None at its end. After a cancellation, the next call continues."""
        assert self._process.stdout is not None
        while b"\n" not in self._left:
            try:
                self._left += await self._process.stdout.receive(1 << 16)
            except anyio.EndOfStream:
                return None
            if len(self._left) > MOST_OUTPUT:
                raise EnvironmentProblem(f"the output has a line of over {MOST_OUTPUT >> 20} MiB", "report it")
        line, _, self._left = self._left.partition(b"\n")
        return bytes(line)

    async def output(self) -> bytes:
        """Return the whole output, at its end. After a cancellation, the next call continues."""
        assert self._process.stdout is not None
        with suppress(anyio.EndOfStream):
            while True:
                self._left += await self._process.stdout.receive(1 << 16)
                if len(self._left) > MOST_OUTPUT:
                    raise EnvironmentProblem(f"the answer is larger than {MOST_OUTPUT >> 20} MiB", "choose less")
        return bytes(self._left)

    async def status(self) -> int:
        """Return the exit status, once it has ended."""
        return await self._process.wait()

    def last_words(self) -> str:
        """Return the end of its standard error."""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - LAST_WORDS))
        return self._errors.read().decode(errors="replace").strip()

    async def error(self, what: str) -> KernwrightError:
        """Return the error that the command line has printed, once it has ended."""
        status, words = await self.status(), self.last_words()
        if status == -signal.SIGXCPU or "MemoryError" in words:
            limits = f"{MOST_CPU_S} s of processor time and {MOST_MEMORY >> 30} GiB of memory"
            return EnvironmentProblem(f"{what} takes more than {limits}", "use the command line, or choose less")
        if words.startswith(PRINTED):
            message, _, _ = words.removeprefix(PRINTED).partition("\n  see: ")  # the page for users of the command line
            return KernwrightError(*message.split("\n  remedy: ", 1))
        logger.error("%s ended with status %d:\n%s", what, status, words)
        return EnvironmentProblem(f"{what} ended with status {status}", "see the standard error of the server")


@asynccontextmanager
async def child(
    module: Sequence[str], folder: Path, first_line: bytes | None = None, limited: bool = False
) -> AsyncIterator[Child]:
    """Run `python -m MODULE [ARGS]` while the context lasts.

    A child that still runs at the end, such as after a cancellation, is asked to stop, and killed with all its
    descendants if it does not end in time.

    Args:
        module: the name of the module, then its arguments.
        folder: the working directory.
        first_line: a line for its standard input. Such a child stops when standard input is closed, so that it also
            notices the end of the server. Without it, the child gets the signal of Ctrl-C.
        limited: whether MOST_CPU_S and MOST_MEMORY hold.
    """
    with tempfile.TemporaryFile() as errors:
        # -P: import nothing from the working directory, where clients may write.
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", *module],
            cwd=folder,
            stderr=errors,
            env={**os.environ, "NO_COLOR": "1"},
            start_new_session=True,
        )
        try:
            assert process.stdin is not None
            if limited:
                resource.prlimit(process.pid, resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S + 1))
                resource.prlimit(process.pid, resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            if first_line is not None:
                await process.stdin.send(first_line)
            yield Child(process, errors)
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process, reads_input=first_line is not None)


async def _end(process: Process, reads_input: bool) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, anyio.BrokenResourceError, OSError):
            if reads_input and process.stdin is not None:
                await process.stdin.aclose()
            else:
                process.send_signal(signal.SIGINT)
        await _drained(process)
    if process.returncode is None:
        below = running_descendants(process.pid)
        with suppress(ProcessLookupError):
            process.kill()
        signal_all(below, signal.SIGKILL)
        await process.wait()
    await process.aclose()


async def _drained(process: Process) -> None:
    """Wait until a process ends, and read its output so that it does not block on a full pipe."""
    with anyio.move_on_after(STOP_DEADLINE_S):
        assert process.stdout is not None
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                await process.stdout.receive()
        await process.wait()
