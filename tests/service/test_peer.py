"""Peers: another user, and descendants of this process, are refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kernwright.service.peer import ancestors, why_refused

CONNECT = "import socket, sys; own = socket.socket(socket.AF_UNIX); own.connect(sys.argv[1]); own.recv(1)"


def test_a_descendant_is_refused_and_the_process_itself_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "own"))
        listener.listen()
        child = subprocess.Popen([sys.executable, "-S", "-c", CONNECT, str(tmp_path / "own")])
        accepted, _ = listener.accept()
        with accepted:
            assert ancestors(child.pid)[0] == os.getpid()
            assert "workers" in str(why_refused(accepted))
        child.wait()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert why_refused(ours) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused() -> None:
    """The kernel notes the user of a socket when it listens."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/own")
        os.seteuid(65534)
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"{folder}/own")
            assert "65534" in str(why_refused(connection))
