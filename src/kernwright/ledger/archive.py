"""Archive: runs, their blobs and their heads in one compressed tar file.

Members are ``heads-excerpt.jsonl``, ``runs/<run id>.jsonl`` and ``blobs/<two digits>/<digest>``. Equal runs always give
equal bytes. An unpacked archive is a folder that ``verify`` and ``import_runs`` accept as well.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kernwright.core.errors import LedgerError
from kernwright.ledger.record import is_run_id

# An archive holds only the heads of the exported runs: sound records, but no unbroken chain.
HEADS_EXCERPT = "heads-excerpt.jsonl"
_CHUNK = 1 << 20
_BLOB_MEMBER = re.compile(r"blobs/([0-9a-f]{2})/\1[0-9a-f]{62}")


@dataclass(frozen=True)
class ArchiveLimits:
    """Bounds that an honest archive stays well below. A larger one is refused before it fills memory or disk."""

    member_bytes: int = 1 << 30
    total_bytes: int = 8 << 30
    members: int = 200_000


def write_archive(stream: IO[bytes], members: Iterable[tuple[str, bytes]]) -> None:
    """Write members, given as name and content, in the order given.

    No file name, time or owner is stored, so that equal evidence makes an equal archive.
    """
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as squeezed,
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


def unpack_archive(path: Path, folder: Path, limits: ArchiveLimits, remedy: str) -> None:
    """Unpack an archive into an empty folder. Other names, links and absurd sizes are refused."""
    try:
        with _BoundedGzip(path, "rb") as squeezed:
            squeezed.ceiling = limits.total_bytes + 2048 * limits.members  # room for headers and padding
            with tarfile.open(fileobj=squeezed, mode="r:") as archive:
                total = 0
                for count, member in enumerate(archive, start=1):
                    total += member.size
                    if count > limits.members or member.size > limits.member_bytes or total > limits.total_bytes:
                        raise tarfile.ReadError(f"{member.name!r} makes it absurdly large")
                    _unpack_member(archive, member, folder)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RecursionError) as error:
        raise LedgerError(f"{path} is no sound ledger archive: {error}", remedy) from error


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    name = member.name.removeprefix("./")
    if member.isdir():  # A repacked archive may list its folders. They are made from the names of the files.
        return
    run = name.removeprefix("runs/").removesuffix(".jsonl")
    is_run_file = is_run_id(run) and name == f"runs/{run}.jsonl"
    if not (is_run_file or _BLOB_MEMBER.fullmatch(name) or name == HEADS_EXCERPT):
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
