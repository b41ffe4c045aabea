"""AgentRun: one run of an agent's program, within its limits. Nothing that it started survives it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernwright.campaign.agents.supervisor import GRACE_S
from kernwright.campaign.agents.transcript import Transcript
from kernwright.campaign.agents.walls import Walls
from kernwright.diagnose.program_run.process_tree import adopting_orphans, reap_orphans, running_descendants, signal_all

PIECE = 1 << 16
LONGEST_LINE = 1 << 20  # a cost is searched in lines up to this length
_POLL_S = 0.2


@dataclass(frozen=True, kw_only=True)
class AgentRun:
    """A program to run as an agent.

    Attributes:
        walls: None runs it without walls.
        cost_pattern: finds the cost so far, in dollars, in a line of output; its first group is the number.
    """

    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    walls: Walls | None
    time_limit_s: float | None = None
    cost_limit_usd: float | None = None
    cost_pattern: re.Pattern[str] | None = None

    def run(self, heard: Callable[[str], None]) -> RunEnding:
        """Run the program to its end or to a limit. `heard` receives the last line of each piece of output.

        A KeyboardInterrupt ends all of its processes, and is raised again.
        """
        with adopting_orphans():
            return _Running(self).follow(heard)


@dataclass(frozen=True, kw_only=True)
class RunEnding:
    """How a run ended. `status` of 128 and more is a signal; `cost_usd` is the last one in the output."""

    status: int
    seconds: float
    transcript: bytes
    is_timed_out: bool = False
    is_over_cost: bool = False
    cost_usd: float | None = None


class _Running:
    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._spared = frozenset(running_descendants(os.getpid()))
        self._started_at = time.monotonic()
        self._transcript = Transcript()
        self._line = b""
        self._cost: float | None = None
        orders = {
            "parent": os.getpid(),
            "command": list(run.command),
            "folder": str(run.folder),
            "walls": run.walls.as_argument() if run.walls else None,
        }
        # -P and a working directory of root's: modules in the agent's folder must not be imported outside the walls.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kernwright.campaign.agents.supervisor", json.dumps(orders)],
            env=dict(run.environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            bufsize=0,
        )

    def follow(self, heard: Callable[[str], None]) -> RunEnding:
        is_timed_out = is_over_cost = False
        try:
            while self._process.poll() is None and not (is_timed_out or is_over_cost):
                self._read(_POLL_S, heard)
                limit = self._run.time_limit_s
                is_timed_out = limit is not None and time.monotonic() - self._started_at > limit
                is_over_cost = self._is_over_cost()
        finally:
            seconds = time.monotonic() - self._started_at
            self._end()
        while self._read(0.0, heard):
            pass
        assert self._process.stdout is not None
        self._process.stdout.close()
        return RunEnding(
            status=self._process.returncode,
            seconds=seconds,
            transcript=self._transcript.content(),
            is_timed_out=is_timed_out,
            is_over_cost=is_over_cost,
            cost_usd=self._cost,
        )

    def _is_over_cost(self) -> bool:
        limit = self._run.cost_limit_usd
        return limit is not None and self._cost is not None and self._cost > limit

    def _read(self, wait_s: float, heard: Callable[[str], None]) -> bool:
        """Read the available output. Wait for it at most `wait_s` seconds. Return whether there was any."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        if not select.select([descriptor], [], [], wait_s)[0]:
            return False
        if not (piece := os.read(descriptor, PIECE)):
            time.sleep(wait_s)  # the program closed its output and still runs
            return False
        self._transcript.add(piece)
        *lines, self._line = (self._line + piece).split(b"\n")
        self._line = self._line[-LONGEST_LINE:]
        for line in lines:
            self._note_cost(line.decode(errors="replace"))
        if shown := next((line for line in reversed(lines) if line.strip()), None):
            heard(shown.decode(errors="replace").strip())
        return True

    def _note_cost(self, line: str) -> None:
        if self._run.cost_pattern is not None and (match := self._run.cost_pattern.search(line)):
            with suppress(ValueError, IndexError):
                self._cost = float(match[1])

    def _end(self) -> None:
        """End the supervisor, which ends the agent's processes. Its orphans are children of this process."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2 * GRACE_S)
        give_up_at = time.monotonic() + 2 * GRACE_S  # the kernel keeps a process whose driver hangs
        while (running := running_descendants(os.getpid(), self._spared)) and time.monotonic() < give_up_at:
            signal_all(running, signal.SIGKILL)
            time.sleep(0.01)
            reap_orphans(self._spared | {self._process.pid})
        self._process.wait()
        reap_orphans(self._spared)
