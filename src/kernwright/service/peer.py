"""Peer: the process at the other end of a local socket."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
MOST_ANCESTORS = 100


def why_refused(connection: socket.socket) -> str | None:
    """Return why a server does not talk to this peer; None if it is a program of the same user and no worker."""
    pid, user, _ = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    if user != os.geteuid():
        return f"user {user} is not the user of this server"
    if os.getpid() in ancestors(pid):
        return "workers of the server are no clients"
    return None


def ancestors(pid: int) -> list[int]:
    """Return the processes above a process. Orphans of workers are children of the server."""
    found: list[int] = []
    while pid > 1 and len(found) < MOST_ANCESTORS:
        parent = 0
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(parent)
        pid = parent
    return found
