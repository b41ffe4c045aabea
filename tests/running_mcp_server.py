"""A server of the MCP tests, clients of it, and what their answers say."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from kernwright.diagnose.program_run.process_tree import running_descendants
from kernwright.judge.system.procfs import is_alive

TESTS = Path(__file__).parent
TOKEN = "token-of-the-tests"
REPEATED_OPS = '''
"""An op whose eager chain has many steps, so that one step in its place is many times faster."""

from torch import Tensor

from kernwright.core.op import define


@define(outputs=["y"], activations=["x"])
def sum_of_64(x: Tensor) -> Tensor:
    """x added up 64 times"""
    y = x
    for _ in range(63):
        y = y + x
    return y
'''
SOURCES = {
    "right": "def sum_of_64(x):\n    return x * 64\n",
    "wrong": "def sum_of_64(x):\n    return x * 63\n",
    "sleeps": "import time\n\n\ndef sum_of_64(x):\n    time.sleep(0.3)\n    return x * 64\n",
}
CANDIDATE_TOML = 'op = "sum_of_64"\nlanguage = "python"\nentry = "kernel.py:sum_of_64"\n'


def files_of(source: str) -> dict[str, str]:
    """Return the files of a candidate."""
    return {"candidate.toml": CANDIDATE_TOML, "kernel.py": SOURCES[source]}


class RunningServer:
    """A server that other programs connect to, and clients of it."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.process = process

    @asynccontextmanager
    async def client(self, mode: str = "auto") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=120.0) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
        ):
            yield client


async def until(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait until something is true. Return whether it became true in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        await anyio.sleep(0.1)
    return True


async def ended(pids: list[int]) -> bool:
    """Return whether processes end in time."""
    return await until(lambda: not any(map(is_alive, pids)))


def below(process: int) -> list[int]:
    return running_descendants(process)


class Judging:
    """A call of judge in the background, on a candidate that never ends, and the processes that it started."""

    def __init__(self, server: int) -> None:
        self._server = server
        self.pids: list[int] = []

    async def in_the_middle(self) -> None:
        """Wait until workers run: the program of the judgement, the zygote and one worker at least."""
        assert await until(lambda: len(below(self._server)) >= 4), below(self._server)
        self.pids = below(self._server)


def told(result: Any) -> dict[str, Any]:
    """Return the structured content of a result, which must not be an error."""
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content, "clients without schemas read the text"
    return dict(result.structured_content)


def error_of(result: Any) -> str:
    """Return the message of an error, which has a remedy and no traceback."""
    text = str(result.content[0].text)
    assert result.is_error and "remedy:" in text and "Traceback" not in text and 'File "' not in text, text
    return text
