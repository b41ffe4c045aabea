"""LedgerSource: read access to the files of a ledger, whether they are in a folder or in an archive.

Names are relative to the ledger's root and use forward slashes: ``heads.jsonl``, ``runs/<run id>.jsonl``,
``blobs/<two digits>/<digest>``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol


class LedgerSource(Protocol):
    """The files of one ledger, read-only. A missing name raises FileNotFoundError."""

    @property
    def place(self) -> Path:
        """The folder or the archive, for messages."""

    def exists(self, name: str) -> bool: ...

    def size(self, name: str) -> int: ...

    def open(self, name: str) -> IO[bytes]: ...

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files directly in ``folder``; none if there is no such folder."""


class FolderSource:
    """A ledger folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def place(self) -> Path:
        return self._root

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def size(self, name: str) -> int:
        return (self._root / name).lstat().st_size

    def open(self, name: str) -> IO[bytes]:
        return (self._root / name).open("rb")

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(path.name for path in (self._root / folder).iterdir())
        except FileNotFoundError:
            return []


def complete_lines(stream: IO[bytes], limit: int = -1) -> Iterator[bytes]:
    """Yield the terminated lines, without newlines, of the first ``limit`` bytes (-1: of all) and close the stream.

    A line without its newline is a write that was never acknowledged. Readers ignore it.
    """
    left = limit
    with stream:
        while left != 0:
            line = stream.readline(left)
            if not line.endswith(b"\n"):
                return
            left -= len(line) if limit >= 0 else 0
            yield line[:-1]
