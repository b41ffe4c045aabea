"""Archive: an unpacked tree, compressed and cut into pieces, for a machine without a network.

Pieces are cut by bytes, because a single library may exceed the size limit of a transfer.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from kernwright.core.errors import EnvironmentProblem
from kernwright.packages.files import named_files

PRESET = 3  # output is at most 10 % larger than with the best preset, and made much faster
CHUNK = 1 << 20


def pack(tree: Path, archive: Path) -> int:
    """Write the archive of a tree and return its size. Equal files give equal bytes."""
    with lzma.open(archive, "wb", preset=PRESET) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        for name, path in sorted(named_files(tree).items()):
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as data:
                tar.addfile(entry, data)
    return archive.stat().st_size


def cut(archive: Path, most: int, name: Callable[[int, int], str], folder: Path) -> list[Path]:
    """Cut an archive into files of at most ``most`` bytes. All but the last have the same size."""
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
    """Unpack an archive from its pieces. The caller compares the result with the tree's digest."""
    try:
        joined = io.BufferedReader(_Joined(pieces), CHUNK)
        with lzma.open(joined) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            tar.extractall(place, filter="data")
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        raise EnvironmentProblem(
            f"{pieces[0].name} is not a complete archive: {error}", "copy the parts of the bundle again"
        ) from None


class _Joined(io.RawIOBase):
    """Several files read as one stream."""

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
