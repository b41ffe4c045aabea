"""Serve over HTTP on this machine: one address, a token, and a check of the headers Host and Origin."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from kernwright.core.errors import EnvironmentProblem
from kernwright.mcp.server import KernwrightServer
from kernwright.mcp.stdio import MOST_REQUEST_BYTES

HOST = "127.0.0.1"
PATH = "/mcp"
MOST_SESSIONS = 32
STOP_DEADLINE_S = 5

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class TokenCheck:
    """Refuses requests without the token. Other users and web pages can reach the address, too."""

    def __init__(self, application: Application, token: str) -> None:
        self._application = application
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers") or ()).get(b"authorization", b"")
        if scope["type"] == "http" and not secrets.compare_digest(given, self._wanted):
            headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
            text = b"the token is missing or wrong\n  remedy: send the header Authorization: Bearer TOKEN\n"
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": text})
            return
        await self._application(scope, receive, send)


def bound_socket(port: int) -> socket.socket:
    """Return a socket on this machine's own address; port 0 takes any free one."""
    own = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((HOST, port))
        own.listen()  # from now on clients may connect, also before the server runs
    except OSError as error:
        own.close()
        raise EnvironmentProblem(f"port {port} cannot be used: {error.strerror}", "choose another --port") from None
    return own


async def serve_http(server: KernwrightServer, own: socket.socket, token: str) -> None:
    """Serve clients until the program is interrupted."""
    # The SDK refuses requests whose headers Host and Origin do not name this machine.
    application = server.streamable_http_app(
        host=HOST, streamable_http_path=PATH, max_request_body_size=MOST_REQUEST_BYTES, max_sessions=MOST_SESSIONS
    )
    config = uvicorn.Config(
        TokenCheck(application, token),
        ws="none",
        log_level="warning",
        timeout_graceful_shutdown=STOP_DEADLINE_S,
        lifespan="on",
    )
    await uvicorn.Server(config).serve(sockets=[own])
