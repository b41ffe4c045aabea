"""Archive: an unpacked tree as compressed pieces of a given size, to carry to a machine without a network.

Pieces are cut by bytes: one library of CuTe-DSL alone is larger than what some machines take at once.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from kernwright.bundle.files import named_files
from kernwright.core.errors import EnvironmentProblem

PRESET = 3  # within a tenth of the best preset's size, in a fraction of its time
CHUNK = 1 << 20


def pack(tree: Path, archive: Path) -> int:
    """Writes the archive; returns its size. The same files give the same bytes."""
    with lzma.open(archive, "wb", preset=PRESET) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        for name, path in sorted(named_files(tree).items()):
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as data:
                tar.addfile(entry, data)
    return archive.stat().st_size


def cut(archive: Path, most: int, name: Callable[[int, int], str], folder: Path) -> list[Path]:
    """The archive as files of at most that many bytes, all but the last of the same size."""
    size = archive.stat().st_size
    count = max(1, -(-size // most))
    pieces = []
    with archive.open("rb") as stream:
        for number in range(1, count + 1):
            piece = folder / name(number, count)
            piece.write_bytes(stream.read(-(-size // count)))
            pieces.append(piece)
    return pieces


def restore(pieces: Sequence[Path], place: Path) -> None:
    """Unpacks an archive that lies in pieces. Whether it is the right one is for the tree's digest to say."""
    try:
        joined = io.BufferedReader(_Joined(pieces), CHUNK)
        with lzma.open(joined) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            tar.extractall(place, filter="data")
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        raise EnvironmentProblem(
            f"{pieces[0].name} is no whole archive: {error}", "carry the bundle's parts over again"
        ) from None


class _Joined(io.RawIOBase):
    """Files read as one."""

    def __init__(self, pieces: Sequence[Path]) -> None:
        self._streams = self._opened(pieces)
        self._current: BinaryIO | None = next(self._streams, None)

    @staticmethod
    def _opened(pieces: Sequence[Path]) -> Iterator[BinaryIO]:
        for piece in pieces:
            with piece.open("rb") as stream:
                yield stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while self._current is not None:
            if data := self._current.read(len(buffer)):
                buffer[: len(data)] = data
                return len(data)
            self._current = next(self._streams, None)
        return 0
