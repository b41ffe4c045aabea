"""Address: the folder, the socket and the secret token of the server of one device.

The folder is open to its owner only. A worker that runs as another user cannot enter it. A worker that keeps the
judge's user cannot read the token, because landlock closes the folder to it, and a server refuses its own descendants.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem

FOLDER_VARIABLE = "KERNWRIGHT_SERVERS"
MOST_RECORD = 4096


def servers_folder() -> Path:
    """Return the folder with the sockets of this user's servers."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named).expanduser().absolute()
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "kernwright"
    return Path("/tmp") / f"kernwright-servers-{os.geteuid()}"


def device_name(device: str) -> str:
    """Return the full name of a device: `cuda` is `cuda:0`."""
    return "cuda:0" if device == "cuda" else device


@dataclass(frozen=True)
class ServerRecord:
    """The process and the token of a server, with which a client connects to it."""

    pid: int
    token: str


class Address:
    """The place of the server of one device."""

    def __init__(self, device: str, folder: Path | None = None) -> None:
        self.device = device_name(device)
        self.folder = folder or servers_folder()
        self._name = self.device.replace(":", "-")

    @property
    def socket_path(self) -> Path:
        return self.folder / f"{self._name}.sock"

    def known_server(self) -> ServerRecord | None:
        """Return the record of a server, which may have been killed meanwhile; None if there is none."""
        try:
            with self._opened(create=False) as folder:
                descriptor = os.open(f"{self._name}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    known = json.loads(os.read(descriptor, MOST_RECORD))
                finally:
                    os.close(descriptor)
            return ServerRecord(pid=int(known["pid"]), token=str(known["token"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def connect(self, seconds: float) -> socket.socket:
        """Return a connection to the server. Raises OSError if no server listens."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._opened(create=False) as folder:
                connection.settimeout(seconds)
                connection.connect(f"/proc/self/fd/{folder}/{self.socket_path.name}")  # the path may be too long
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def listening(self) -> Iterator[tuple[socket.socket, ServerRecord]]:
        """Provide a listening socket and its record, and remove both at the end.

        A lock shows whether a server lives. The socket of a server that was killed is replaced.
        """
        with self._opened(create=True) as folder, self._only_server(folder):
            self._remove(folder)
            record = ServerRecord(pid=os.getpid(), token=secrets.token_hex(32))
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listener.bind(f"/proc/self/fd/{folder}/{self.socket_path.name}")
                os.chmod(self.socket_path.name, 0o600, dir_fd=folder)
                listener.listen(16)
                self._write(folder, record)
                yield listener, record
            finally:
                listener.close()
                self._remove(folder)

    @contextlib.contextmanager
    def _opened(self, create: bool) -> Iterator[int]:
        """Open the folder. Refuse one that other users can enter."""
        if create:
            with contextlib.suppress(FileExistsError):
                self.folder.parent.mkdir(parents=True, exist_ok=True)
                self.folder.mkdir(mode=0o700)
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise EnvironmentProblem(
                    f"{self.folder} is not a folder that only this user can enter",
                    f"remove it, or name another folder in {FOLDER_VARIABLE}",
                )
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _only_server(self, folder: int) -> Iterator[None]:
        descriptor = os.open(f"{self._name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                known = self.known_server()
                raise EnvironmentProblem(
                    f"a server of {self.device} is running already (process {known.pid if known else 'unknown'})",
                    "use it, or end it with Ctrl-C",
                ) from None
            yield
        finally:
            os.close(descriptor)

    def _write(self, folder: int, record: ServerRecord) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(f"{self._name}.json", flags, 0o600, dir_fd=folder)
        try:
            os.write(descriptor, json.dumps({"pid": record.pid, "token": record.token}).encode())
        finally:
            os.close(descriptor)

    def _remove(self, folder: int) -> None:
        for suffix in ("json", "sock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._name}.{suffix}", dir_fd=folder)
