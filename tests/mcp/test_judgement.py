"""Judgements through the server: cancellation, crashes, clients that leave, and two clients at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from running_mcp_server import Judging, RunningServer, below, ended, error_of, files_of, told, until

from kernwright.judge.system.procfs import living_children
from kernwright.ledger.verify import verify

SLEEPING = {"task": "repeated", "candidate": "candidates/sleeps"}


def test_a_judgement_that_is_cancelled_or_crashes_ends_with_all_its_processes(
    server: RunningServer, served_root: Path
) -> None:
    async def cancelled_while_another_client_works(client: Client, mode: str) -> None:
        judging = Judging(server.process.pid)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "judge", SLEEPING)
            await judging.in_the_middle()
            async with server.client(mode) as other:
                assert told(await other.call_tool("task_show", {"task": "repeated"}))["total"] == 1
                assert "wait_s" in error_of(await other.call_tool("judge", SLEEPING))
                heard: list[str | None] = []

                async def hear(progress: float, total: float | None, message: str | None) -> None:
                    heard.append(message)

                waiting = {**SLEEPING, "wait_s": 0.5}
                assert "wait_s" in error_of(await other.call_tool("judge", waiting, progress_callback=hear))
                assert "waiting" in str(heard[0])
            assert living_children(server.process.pid) == judging.pids[:1], "one judgement runs, as before"
            judging.pids = below(server.process.pid)
            tasks.cancel_scope.cancel()
        assert await ended(judging.pids)

    async def crashed(client: Client) -> None:
        judging = Judging(server.process.pid)
        results: list[Any] = []

        async def judge() -> None:
            results.append(await client.call_tool("judge", SLEEPING))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(judge)
            await judging.in_the_middle()
            os.kill(judging.pids[0], signal.SIGKILL)
        assert "status -9" in error_of(results[0])
        assert await ended(judging.pids)

    async def main() -> None:
        async with server.client("legacy") as client:
            told(await client.call_tool("candidate_write", {"name": "sleeps", "files": files_of("sleeps")}))
            await cancelled_while_another_client_works(client, "auto")
            await crashed(client)
        async with server.client() as leaving:
            judging = Judging(server.process.pid)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(leaving.call_tool, "judge", SLEEPING)
                await judging.in_the_middle()
                tasks.cancel_scope.cancel()
        assert await ended(judging.pids)
        async with server.client() as after:
            assert told(await after.call_tool("ledger_verify", {}))["sound"]

    anyio.run(main)
    assert verify(served_root / ".kernwright" / "ledger") == []


def test_a_client_on_stdio_that_disconnects_leaves_no_process(
    served_root: Path, served_environment: dict[str, str]
) -> None:
    """The client ends the server before that has time to end its own children."""
    arguments = ["-m", "kernwright", "mcp", "--root", str(served_root)]
    parameters = StdioServerParameters(command=sys.executable, args=arguments, env=served_environment, cwd=served_root)
    pids: list[int] = []

    async def main() -> None:
        known = set(below(os.getpid()))
        async with anyio.create_task_group() as tasks, Client(parameters, mode="legacy") as client:
            with pytest.raises(MCPError, match="larger than"):
                await client.call_tool("candidate_write", {"name": "large", "files": {"a.py": "x" * (9 << 20)}})
            told(await client.call_tool("candidate_write", {"name": "sleeps", "files": files_of("sleeps")}))
            (own,) = set(below(os.getpid())) - known
            judging = Judging(own)
            tasks.start_soon(judge_until_the_connection_ends, client)
            await judging.in_the_middle()
            pids.extend([own, *judging.pids])
        assert await ended(pids)

    async def judge_until_the_connection_ends(client: Client) -> None:
        with pytest.raises(MCPError):
            await client.call_tool("judge", SLEEPING)

    anyio.run(main)
    assert pids


STUCK_SERVER = """
import sys, time
from pathlib import Path
import anyio
from kernwright.mcp import stdio
from kernwright.mcp.server import build_server

def stuck() -> str:
    Path(sys.argv[1], "started").touch()
    time.sleep(1000)
    return ""

stdio.EXIT_DEADLINE_S = 0.5
server = build_server([Path(sys.argv[1])])
server._add(stuck, None)
anyio.run(stdio.serve_stdio, server)
"""


def test_a_server_ends_after_its_client_although_a_call_never_returns(tmp_path: Path) -> None:
    """Such as a read of a file on a network drive that does not answer."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "stuck", "arguments": {}}},
    ]
    server = subprocess.Popen(
        [sys.executable, "-c", STUCK_SERVER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert server.stdin is not None
    try:
        for line in lines:
            server.stdin.write(json.dumps(line).encode() + b"\n")
        server.stdin.flush()
        assert anyio.run(until, (tmp_path / "started").exists)
        server.stdin.close()
        server.wait(30)
    finally:
        server.kill()
