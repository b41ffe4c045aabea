"""AllowedFolders: the folders that a client may read and write through the server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kernwright.core.errors import KernwrightError

CANDIDATES = "candidates"  # the folder below a root that holds the candidates of clients
LEDGER = Path(".kernwright", "ledger")
MOST_BYTES = 1 << 30  # size of a trace or a report that is read
LONGEST_PATH = 4096


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
            raise NotAllowed(f"{text!r} is not a usable path: {error}", f"give a path below {self._named()}") from None
        if not self.contains(real):
            raise NotAllowed(
                f"{text} lies outside the folders of this server",
                f"use a path below {self._named()}, or start the server with --root for another folder",
            )
        return real

    def contains(self, real: Path) -> bool:
        """Return whether a path without links lies in one of the folders."""
        return any(real.is_relative_to(root) for root in self.roots)

    def file(self, path: str, most_bytes: int = MOST_BYTES) -> Path:
        """Return the real path of a plain file of a limited size."""
        real = self.resolve(path)
        if not real.is_file():
            found = "is not a plain file" if real.exists() else "does not exist"
            raise KernwrightError(f"{path} {found}", f"name a file below {self._named()}")
        if (size := real.stat().st_size) > most_bytes:
            raise KernwrightError(
                f"{path} has {size:,} bytes, more than the {most_bytes:,} that this server reads",
                "use the command line for it, or record fewer steps",
            )
        return real

    def folder(self, path: str) -> Path:
        """Return the real path of a folder."""
        real = self.resolve(path)
        if not real.is_dir():
            raise KernwrightError(f"{path} is not a folder", f"name a folder below {self._named()}")
        return real

    def ledger(self, path: str | None) -> Path:
        """Return the real path of a ledger's folder or archive; it need not exist. None stands for the default.

        Raises:
            NotAllowed: it lies outside the folders, or one of its files is a link that leads out of them.
        """
        configured = os.environ.get("KERNWRIGHT_LEDGER")
        real = self.resolve(path or (Path(configured).expanduser() if configured else LEDGER))
        for folder in (real, real / "runs"):
            if not folder.is_dir():
                continue
            for entry in os.scandir(folder):
                if entry.is_symlink() and not self.contains(Path(os.path.realpath(entry.path))):
                    raise NotAllowed(
                        f"{entry.path} is a link that leads out of the folders of this server",
                        "replace the link by a copy of the file",
                    )
        return real

    def shown(self, real: Path) -> str:
        """Return a path as a client names it: relative to the first folder if it lies there."""
        return str(real.relative_to(self.roots[0])) if real.is_relative_to(self.roots[0]) else str(real)

    def _named(self) -> str:
        return " or ".join(map(str, self.roots))
