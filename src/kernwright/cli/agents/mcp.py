"""kernwright mcp: serve tasks, judge, records and diagnosis to agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.output import say

NEEDED = ("anyio", "mcp", "uvicorn")  # packages of the extra `mcp`
TOKEN = "KERNWRIGHT_MCP_TOKEN"


def mcp(
    root: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="folder that clients may read and write; repeatable; default: this folder"),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="serve over HTTP on 127.0.0.1 in place of stdin")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port for --http; 0 takes any free one")] = 8765,
) -> None:
    """Serve tasks, the judge, records and diagnosis to an agent, over the Model Context Protocol.

    An agent's program starts the command and speaks with it over standard input and output. Over HTTP, each request
    needs the header `Authorization: Bearer TOKEN`; the token is KERNWRIGHT_MCP_TOKEN, or a new one that is printed.
    """
    import importlib.util
    import os
    import secrets
    import sys

    from kernwright.core.errors import EnvironmentProblem

    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise EnvironmentProblem(
            f"kernwright mcp needs packages that are not installed: {', '.join(missing)}",
            "pip install 'kernwright[mcp]', or in a checkout: pip install '.[mcp]'",
        )
    roots = root or [Path.cwd()]
    # Clients may write below the working directory: nothing may be imported from there.
    sys.path[:] = [entry for entry in sys.path if entry and Path(entry).resolve() != Path.cwd()]

    import anyio

    from kernwright.mcp.preload import preload
    from kernwright.mcp.server import build_server

    server = build_server(roots)
    os.chdir(server.folders.roots[0])
    preload(server)
    if not http:
        from kernwright.mcp.stdio import serve_stdio

        anyio.run(serve_stdio, server)
        return
    from kernwright.mcp.http import HOST, PATH, bound_socket, serve_http

    own = bound_socket(port)
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    say(f"kernwright: http://{HOST}:{own.getsockname()[1]}{PATH}", err=True)
    if TOKEN not in os.environ:
        say(f"kernwright: token {token}", err=True)
    anyio.run(serve_http, server, own, token)
