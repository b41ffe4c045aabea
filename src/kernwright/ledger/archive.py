"""Archive: runs, their blobs and their heads in one compressed tar file.

There are two forms. ``.tar.gz`` is for transfer: one file, quick to write. ``.tar.xz`` is for a repository: small, and
with its heads beside it in ``<name>.heads.jsonl``, as text that a diff shows. Members are ``runs/<run id>.jsonl``,
``blobs/<two digits>/<digest>``, ``heads-excerpt.jsonl`` (transfer) and ``left-out.jsonl`` (repository: runs that were
not packed, with the reason). Equal runs always give equal bytes. Every command that reads a ledger folder also reads
an archive, or a folder of ``.tar.xz`` archives.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Literal

from kernwright.core.errors import LedgerError
from kernwright.ledger.record import is_run_id
from kernwright.ledger.source import FolderSource, LedgerSource

# An archive holds only the heads of the exported runs: sound records, but no unbroken chain.
HEADS_EXCERPT = "heads-excerpt.jsonl"
LEFT_OUT = "left-out.jsonl"
PACKED = ".tar.xz"
_CHUNK = 1 << 20
_XZ_MAGIC = b"\xfd7zXZ\x00"
_XZ_MEMORY = 256 << 20  # bytes that unpacking may need; a dictionary of preset 9 needs a quarter of it
_ASK_AGAIN = "make or copy the archive again"
_BLOB_MEMBER = re.compile(r"blobs/([0-9a-f]{2})/\1[0-9a-f]{62}")


@dataclass(frozen=True)
class ArchiveLimits:
    """Bounds that an honest archive stays well below. A larger one is refused before it fills memory or disk."""

    member_bytes: int = 1 << 30
    total_bytes: int = 8 << 30
    members: int = 200_000


def heads_beside(archive: Path) -> Path:
    """Return the path of the heads of a ``.tar.xz`` archive."""
    return archive.with_name(archive.name.removesuffix(PACKED) + ".heads.jsonl")


def write_archive(stream: IO[bytes], members: Iterable[tuple[str, bytes]], form: Literal["gz", "xz"] = "gz") -> None:
    """Write members, given as name and content, in the order given.

    No file name, time or owner is stored, so that equal evidence makes an equal archive.
    """
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
        if form == "gz"
        else lzma.LZMAFile(stream, "wb", preset=9) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


class _BoundedGzip(gzip.GzipFile):
    """Refuses the reads that a decompression bomb needs: one huge header, or no end."""

    ceiling = 0

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= 16 * _CHUNK or self.tell() > self.ceiling:
            raise tarfile.ReadError("it unpacks to an absurd size")
        return super().read(size)


class _BoundedXz(lzma.LZMAFile):
    """Like _BoundedGzip, for LZMA. Unpacking also refuses a dictionary that needs too much memory."""

    ceiling = 0

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= 16 * _CHUNK or self.tell() > self.ceiling:
            raise tarfile.ReadError("it unpacks to an absurd size")
        return super().read(size)


@contextmanager
def _unpacking(path: Path, limits: ArchiveLimits) -> Iterator[_BoundedXz | _BoundedGzip]:
    with path.open("rb") as stream:
        start = stream.read(1024)
    is_xz = start.startswith(_XZ_MAGIC)
    if is_xz:
        lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY).decompress(start, max_length=1)
    with _BoundedXz(path) if is_xz else _BoundedGzip(path, "rb") as squeezed:
        squeezed.ceiling = limits.total_bytes + 2048 * limits.members  # room for headers and padding
        yield squeezed


def unpack_archive(path: Path, folder: Path, limits: ArchiveLimits | None = None, remedy: str = _ASK_AGAIN) -> None:
    """Unpack an archive into an empty folder, with the heads beside it. Other names, links and absurd sizes are
    refused."""
    limits = limits or ArchiveLimits()
    try:
        with _unpacking(path, limits) as squeezed, tarfile.open(fileobj=squeezed, mode="r:") as archive:
            total = 0
            for count, member in enumerate(archive, start=1):
                total += member.size
                if count > limits.members or member.size > limits.member_bytes or total > limits.total_bytes:
                    raise tarfile.ReadError(f"{member.name!r} makes it absurdly large")
                _unpack_member(archive, member, folder)
        if path.name.endswith(PACKED) and heads_beside(path).is_file() and not (folder / HEADS_EXCERPT).exists():
            shutil.copyfile(heads_beside(path), folder / HEADS_EXCERPT)
    except (
        tarfile.TarError,
        gzip.BadGzipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        ValueError,
        RecursionError,
    ) as error:
        raise LedgerError(f"{path} is no sound ledger archive: {error}", remedy) from error


def read_left_out(path: Path) -> list[dict[str, Any]]:
    """Return the entries of an archive's runs that were not packed."""
    with tempfile.TemporaryDirectory(prefix="kernwright-archive-") as folder:
        unpack_archive(path, Path(folder))
        listed = Path(folder) / LEFT_OUT
        lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    try:
        return [entry for entry in map(json.loads, lines) if is_run_id(entry["run"])]
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"{LEFT_OUT} in {path} is damaged: {error}", _ASK_AGAIN) from error


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    name = member.name.removeprefix("./")
    if member.isdir():  # A repacked archive may list its folders. They are made from the names of the files.
        return
    run = name.removeprefix("runs/").removesuffix(".jsonl")
    is_run_file = is_run_id(run) and name == f"runs/{run}.jsonl"
    if not (is_run_file or _BLOB_MEMBER.fullmatch(name) or name in (HEADS_EXCERPT, LEFT_OUT)):
        raise tarfile.ReadError(f"{member.name!r} does not belong in a ledger archive")
    # tarfile also counts a sparse file as regular, and such a file may claim terabytes.
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        raise tarfile.ReadError(f"{member.name!r} is no plain file")
    content = archive.extractfile(member)
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if content is None or target.exists():
        raise tarfile.ReadError(f"{member.name!r} occurs twice")
    with content, target.open("xb") as stream:
        shutil.copyfileobj(content, stream, _CHUNK)


class ArchiveSource(FolderSource):
    """An archive, unpacked into a temporary folder that lasts as long as this object."""

    def __init__(self, path: Path) -> None:
        self._staging = tempfile.TemporaryDirectory(prefix="kernwright-archive-")
        self._path = path
        unpack_archive(path, Path(self._staging.name))
        super().__init__(Path(self._staging.name))

    @property
    def place(self) -> Path:
        return self._path


class CombinedSource:
    """The files of several sources. If several sources have a file of one name, that of the first is read."""

    def __init__(self, place: Path, sources: Sequence[LedgerSource]) -> None:
        self._place = place
        self._sources = sources

    @property
    def place(self) -> Path:
        return self._place

    def _holder(self, name: str) -> LedgerSource:
        return next((source for source in self._sources if source.exists(name)), self._sources[0])

    def exists(self, name: str) -> bool:
        return self._holder(name).exists(name)

    def size(self, name: str) -> int:
        return self._holder(name).size(name)

    def open(self, name: str) -> IO[bytes]:
        return self._holder(name).open(name)

    def names(self, folder: str) -> list[str]:
        return sorted({name for source in self._sources for name in source.names(folder)})


def archives_at(root: Path) -> list[Path]:
    """Return ``root`` if it is a file, or the archives of a folder of archives; none for a ledger folder."""
    if root.is_file():
        return [root]
    return [] if (root / "runs").exists() or not root.is_dir() else sorted(root.glob(f"*{PACKED}"))


def sources_at(root: Path) -> list[LedgerSource]:
    """Return the parts of a ledger that are verified separately: one folder, or each archive."""
    archives = archives_at(root)
    return [_opened(path, path.stat().st_mtime_ns) for path in archives] if archives else [FolderSource(root)]


@lru_cache(maxsize=8)
def _opened(path: Path, modified_ns: int) -> ArchiveSource:
    """Return an archive's source. Archives stay unpacked: one command reads the same archive several times."""
    return ArchiveSource(path)


def source_at(root: Path) -> LedgerSource:
    """Return the files of a ledger folder, an archive or a folder of archives as one source."""
    sources = sources_at(root)
    return sources[0] if len(sources) == 1 else CombinedSource(root, sources)
