"""AllowedFolders: the folders that a client may read and write through the server."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernwright.core.errors import KernwrightError

CANDIDATES = "candidates"  # the folder below a root that holds the candidates of clients
LEDGER = Path(".kernwright", "ledger")
MOST_BYTES = 1 << 30  # size of a trace or a report that is read
LONGEST_PATH = 4096
LONGEST_SHOWN = 200  # characters of a wrong path that an error repeats


class NotAllowed(KernwrightError):
    """A path outside the folders that were named at start."""


class AllowedFolders:
    """The folders of a server. Links are followed before a path is compared with them.

    Args:
        roots: the folders; the first one is where relative paths begin.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots: list[Path] = []
        for root in roots:
            if not root.is_dir():
                raise KernwrightError(f"--root {root} is not a folder", "name a folder that exists")
            self.roots.append(root.resolve())

    def resolve(self, path: str | Path) -> Path:
        """Return the real path of a file or folder, which need not exist.

        Raises:
            NotAllowed: it lies outside the folders, also if only a link leads there.
        """
        text = str(path)
        if not text or "\0" in text or len(text) > LONGEST_PATH:
            raise NotAllowed(f"{text[:80]!r} is not a path", f"give a path below {self._named()}")
        try:
            real = Path(os.path.realpath(self.roots[0] / Path(text)))
        except (OSError, ValueError) as error:
            raise NotAllowed(
                f"{text[:80]!r} is not a usable path: {error}", f"use a path below {self._named()}"
            ) from None
        if not self.contains(real):
            raise NotAllowed(
                f"{text[:LONGEST_SHOWN]} lies outside the folders of this server",
                f"use a path below {self._named()}, or start the server with --root for another folder",
            )
        return real

    def contains(self, real: Path) -> bool:
        """Return whether a path without links lies in one of the folders."""
        return any(real.is_relative_to(root) for root in self.roots)

    def file(self, path: str, most_bytes: int = MOST_BYTES) -> Path:
        """Return the real path of a plain file of a limited size."""
        real = self.resolve(path)
        state = _state(real)
        if state is None or not stat.S_ISREG(state.st_mode):
            found = "does not exist" if state is None else "is not a plain file"
            raise KernwrightError(f"{path[:LONGEST_SHOWN]} {found}", f"name a file below {self._named()}")
        if state.st_size > most_bytes:
            raise KernwrightError(
                f"{path} has {state.st_size:,} bytes, more than the {most_bytes:,} that this server reads",
                "use the command line for it, or record fewer steps",
            )
        return real

    def folder(self, path: str) -> Path:
        """Return the real path of a folder."""
        real = self.resolve(path)
        state = _state(real)
        if state is None or not stat.S_ISDIR(state.st_mode):
            raise KernwrightError(f"{path[:LONGEST_SHOWN]} is not a folder", f"name a folder below {self._named()}")
        return real

    def ledger(self, path: str | None) -> Path:
        """Return the real path of a ledger's folder or archive; it need not exist. None stands for the default.

        Raises:
            NotAllowed: it lies outside the folders, or `check_entries` refuses one of its files.
        """
        configured = os.environ.get("KERNWRIGHT_LEDGER")
        real = self.resolve(path or (Path(configured).expanduser() if configured else LEDGER))
        state = _state(real)
        if state is not None and not (stat.S_ISDIR(state.st_mode) or stat.S_ISREG(state.st_mode)):
            raise NotAllowed(f"{path} is neither a folder nor a plain file", "name the folder or archive of a ledger")
        for folder in (real, real / "runs"):
            if folder.is_dir():
                self.check_entries(folder)
        return real

    def check_entries(self, folder: Path) -> None:
        """Raise NotAllowed if a folder holds a link that leads out of the folders, or a special file.

        Reading a pipe would never end.
        """
        for entry in os.scandir(folder):
            if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
                continue
            real = Path(os.path.realpath(entry.path))
            if not self.contains(real):
                raise NotAllowed(
                    f"{entry.path} is a link that leads out of the folders of this server",
                    "replace the link by a copy of the file",
                )
            state = _state(real)
            if state is not None and not (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)):
                raise NotAllowed(f"{entry.path} is a pipe, a socket or a device", "remove it")

    @contextmanager
    def pinned(self, folder: Path) -> Iterator[Path]:
        """Yield a path that leads to a folder also if another program puts a link in its place meanwhile.

        Raises:
            NotAllowed: it is a link, or lies outside the folders.
        """
        try:
            descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise NotAllowed(f"{folder} cannot be used: {error.strerror}", "make it a folder") from None
        try:
            path = Path(f"/proc/self/fd/{descriptor}")
            if not self.contains(path.readlink()):
                raise NotAllowed(f"{folder} leads out of the folders of this server", "remove the link")
            yield path
        finally:
            os.close(descriptor)

    def shown(self, real: Path) -> str:
        """Return a path as a client names it: relative to the first folder if it lies there."""
        return str(real.relative_to(self.roots[0])) if real.is_relative_to(self.roots[0]) else str(real)

    def _named(self) -> str:
        return " or ".join(map(str, self.roots))


def _state(real: Path) -> os.stat_result | None:
    """Return the state of a file; None if there is none, or none that can be read."""
    try:
        return real.stat()
    except OSError:
        return None
