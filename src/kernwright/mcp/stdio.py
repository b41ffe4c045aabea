"""Serve over standard input and output, with a limit on the size of a request."""

from __future__ import annotations

import json
import os
import re
import threading
from typing import IO, Any, cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError

from kernwright.mcp.child import STOP_DEADLINE_S
from kernwright.mcp.judge_program import end_process_and_descendants
from kernwright.mcp.server import KernwrightServer

MOST_REQUEST_BYTES = 8 << 20
EXIT_DEADLINE_S = 2 * STOP_DEADLINE_S  # a server whose client has left ends by then, also if a file never answers
_KEPT = 4096  # bytes of both ends of an oversized line, in which the id of the request is looked for
_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,200}")')


class BoundedLines:
    """The lines of a stream. A line that is too long is not read into memory, but replaced by one that is not JSON.

    The SDK reads whole lines, of any length.

    Attributes:
        refused: the ids of the requests that were too large, as far as they are known.
    """

    def __init__(self, stream: IO[bytes], most: int = MOST_REQUEST_BYTES) -> None:
        self._stream = stream
        self._most = most
        self.refused: list[int | str | None] = []

    def readline(self) -> str:
        """Return the next line; an empty text at the end."""
        line = self._stream.readline(self._most + 1)
        if len(line) <= self._most:
            return line.decode(errors="replace")
        head, tail = line[:_KEPT], line[-_KEPT:]
        while line and not line.endswith(b"\n"):
            line = self._stream.readline(1 << 20)
            tail = (tail + line)[-_KEPT:]
        found = _ID.search(head.partition(b'"params"')[0]) or _last_id(tail)
        self.refused.append(json.loads(found[1]) if found else None)
        return "too large\n"


def _last_id(tail: bytes) -> re.Match[bytes] | None:
    """Return the id of a request whose last field is its id."""
    found = list(_ID.finditer(tail))
    return found[-1] if found and tail[found[-1].end() :].strip() == b"}" else None


async def serve_stdio(server: KernwrightServer) -> None:
    """Serve one client over standard input and output, until it closes them."""
    own = os.dup(0)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - children and libraries must not read requests
        os.dup2(nothing.fileno(), 0)
    lines = BoundedLines(os.fdopen(own, "rb"))
    lowlevel = server._lowlevel_server  # `run_stdio_async` takes no streams
    sound, requests = anyio.create_memory_object_stream[Any](0)
    async with stdio_server(stdin=anyio.wrap_file(cast("IO[str]", lines))) as (read, write):

        async def relay() -> None:
            """Pass requests on. Answer other lines with an error: the SDK ignores them, and the client would wait."""
            async with sound:
                async for message in read:
                    if isinstance(message, Exception):
                        await write.send(SessionMessage(_refusal(lines)))
                    else:
                        await sound.send(message)
            last = threading.Timer(EXIT_DEADLINE_S, end_process_and_descendants)
            last.daemon = True
            last.start()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay)
            await lowlevel.run(requests, write, lowlevel.create_initialization_options())


def _refusal(lines: BoundedLines) -> JSONRPCError:
    """Return the error for a line that is not a request."""
    if lines.refused:
        text = f"the request is larger than {MOST_REQUEST_BYTES:,} bytes\n  remedy: send less, such as fewer files"
        return JSONRPCError(jsonrpc="2.0", id=lines.refused.pop(0), error=ErrorData(code=INVALID_REQUEST, message=text))
    text = "the line is no JSON-RPC message\n  remedy: send one JSON object per line"
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=PARSE_ERROR, message=text))
