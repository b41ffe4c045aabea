"""The tool `judge`: one judgement per device at a time, each in a process of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

import anyio
from mcp.server.mcpserver import Context
from pydantic import Field

from kernwright.advice.next_step import judge_command
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.judge.judge_request import JudgeRequest
from kernwright.ledger.ledger import Ledger
from kernwright.mcp.answer import LedgerPath
from kernwright.mcp.child import Child, child
from kernwright.mcp.folders import AllowedFolders
from kernwright.mcp.tools.tasks import TaskGiven, TaskTools
from kernwright.mcp.tools.verdicts import VerdictCard, card_of, verdict_of
from kernwright.service.request_form import to_form
from kernwright.tasks.candidate import SHIPPED, load_candidate

HEARTBEAT_S = 5.0  # a client that hears nothing for long may give up
LONGEST_WAIT_S = 3600.0
LONGEST_ROWS = 20_000  # characters; a sweep may name hundreds of rows
MOST_ROUNDS = 1000
Result = TypeVar("Result")
PROGRAM = "kernwright.mcp.judge_program"


class ProgressReport:
    """Tells a client how far a call has come. Each report has a higher number than the one before."""

    def __init__(self, context: Context[Any, Any]) -> None:
        self._context = context
        self._number = 0
        self._started = time.monotonic()

    async def tell(self, message: str) -> None:
        """Send one report."""
        self._number += 1
        await self._context.report_progress(self._number, message=message)

    async def still(self, message: str) -> None:
        """Repeat a message with the time that the call has taken."""
        await self.tell(f"{message} ({time.monotonic() - self._started:.0f} s)")

    async def during(self, message: str, work: Callable[[], Awaitable[Result]]) -> Result:
        """Return what some work returns, and repeat a message while it lasts.

        Args:
            work: can be cancelled and called again.
        """
        while True:
            with anyio.move_on_after(HEARTBEAT_S):
                return await work()
            await self.still(message)


class JudgeTools:
    """Judges candidates."""

    def __init__(self, folders: AllowedFolders, tasks: TaskTools) -> None:
        self._folders = folders
        self._tasks = tasks
        self._devices: dict[str, anyio.Lock] = {}

    async def judge(
        self,
        context: Context[Any, Any],
        task: TaskGiven,
        candidate: Annotated[
            str, Field(description="folder of the candidate, or kernwright for the shipped ops", min_length=1)
        ],
        baseline: Annotated[
            str, Field(description="eager, compile, a published package, or an adapter of the task", max_length=100)
        ] = "eager",
        rows: Annotated[
            str | None,
            Field(
                description="globs over row ids, or production, smoke, grid, all; separated by commas",
                max_length=LONGEST_ROWS,
            ),
        ] = None,
        device: Annotated[str, Field(pattern=r"^(cpu|cuda(:[0-9]{1,4})?)$", description="cpu, cuda or cuda:N")] = "cpu",
        quick: Annotated[
            bool, Field(description="check correctness and measure rough times in seconds; not evidence")
        ] = False,
        rounds: Annotated[
            int | None,
            Field(ge=1, le=MOST_ROUNDS, description="maximum number of rounds; undecided rows end inconclusive"),
        ] = None,
        metric: Annotated[Literal["wall", "stream", "device"] | None, Field(description="deciding metric")] = None,
        seed: Annotated[
            str | None,
            Field(pattern=r"^[0-9]{1,19}$", description="seed of a faulty verdict, to repeat its inputs; not evidence"),
        ] = None,
        wait_s: Annotated[
            float, Field(ge=0, le=LONGEST_WAIT_S, description="time to wait for another judgement on the device")
        ] = 0.0,
        ledger: LedgerPath = None,
    ) -> VerdictCard:
        """Judge a candidate against a baseline on the rows of a task, in sandboxed workers.

        Reports progress, and stops when the call is cancelled: rows that were finished stay in the ledger. The verdict
        is faster, same, slower, inconclusive, incorrect, tampered or failed.
        """
        from kernwright.advice.advice import advice_after

        root = self._folders.ledger(ledger)
        asked: dict[str, Any] = {
            "task": task, "candidate": candidate, "baseline": baseline, "rows": rows, "device": device,
            "quick": quick or None, "rounds": rounds, "metric": metric, "seed": seed, "ledger": ledger,
        }  # fmt: skip
        request = JudgeRequest(
            task=str(self._tasks.folder(task).resolve()), baseline=baseline, rows=rows, device=device, quick=quick,
            rounds=rounds, metric=metric, seed=None if seed is None else int(seed), ledger=root,
            **await anyio.to_thread.run_sync(self._contender, candidate),
        )  # fmt: skip
        request = replace(request, command=judge_command(request))
        progress = ProgressReport(context)
        deadline = time.monotonic() + wait_s
        lock = await self._turn("cuda:0" if device == "cuda" else device, deadline, progress)
        try:
            left = max(0.0, deadline - time.monotonic())
            run = await self._run(replace(request, wait_s=left), progress)
        finally:
            lock.release()
        verdict = await anyio.to_thread.run_sync(verdict_of, Ledger(root), run)
        judged = {name: value for name, value in asked.items() if value is not None}
        card = card_of(verdict, self._folders.shown(root), ledger, judged=judged)
        advice = advice_after(verdict, request)
        case = next((failure.case for failure in advice.failures if failure.case), None)
        return card.model_copy(update={"advice": advice.sentence, "failing_case": case})

    def _contender(self, candidate: str) -> dict[str, Any]:
        """Return the fields of a request that name the candidate."""
        if candidate == SHIPPED:
            return {"candidate": None, "contender": SHIPPED}
        return {"candidate": load_candidate(self._folders.folder(candidate)).folder}

    async def _turn(self, device: str, deadline: float, progress: ProgressReport) -> anyio.Lock:
        """Wait until no other call judges on the device, and return its lock, held."""
        lock = self._devices.setdefault(device, anyio.Lock())
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                try:
                    lock.acquire_nowait()
                except anyio.WouldBlock:
                    raise EnvironmentProblem(
                        f"another call of this server is judging on {device}",
                        "call judge again with wait_s, such as wait_s=600, to wait for it",
                    ) from None
                return lock
            with anyio.move_on_after(min(left, HEARTBEAT_S)):
                if lock.locked():
                    await progress.still(f"waiting for another judgement on {device}")
                await lock.acquire()
                return lock

    async def _run(self, request: JudgeRequest, progress: ProgressReport) -> str:
        """Judge in a child process and return the id of the run."""
        message = "starting"
        if request.wait_s:
            message = "starting; waits if another program judges on this device"
        await progress.tell(message)
        line = json.dumps(to_form(request)).encode() + b"\n"
        async with child([PROGRAM], self._folders.roots[0], line) as process:
            phase, steps, done = "", 0, 0
            while True:
                answer = await progress.during(message, process.line)
                if answer is None:
                    raise await _crash(process)
                told = json.loads(answer)
                if "run" in told:
                    return str(told["run"])
                if "cause" in told:
                    raise KernwrightError(told["cause"], told["remedy"].replace("--wait SECONDS", "wait_s=600"))
                if "interrupted" in told:
                    raise EnvironmentProblem("the judgement was interrupted", "call judge again")
                if "phase" in told:
                    phase, steps, done = told["phase"], told["steps"], 0
                else:
                    done += 1
                message = f"{phase}: {done} of {steps} rows"
                await progress.tell(message)


async def _crash(process: Child) -> EnvironmentProblem:
    status = await process.status()
    words = process.last_words().splitlines()[-1:]
    return EnvironmentProblem(
        f"the judgement ended with status {status} and no verdict{': ' + words[0] if words else ''}",
        "call judge again; if it happens again, run `kernwright judge` with the same arguments to see its output",
    )
