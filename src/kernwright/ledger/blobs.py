"""Blobs: files named by the SHA-256 of their content, for raw samples that are too large for a record.

A record refers to a blob with a string value of the form ``blob:<64 hex digits>`` anywhere in its body. The hash chain
covers that name, and the name covers the bytes, so that a blob is as tamper-evident as its record. Large blobs are
stored compressed in a file with the suffix ``.gz``; the name is always the hash of the uncompressed content.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

from kernwright.core.errors import LedgerError
from kernwright.ledger.files import ledger_failure, make_folder, replacing
from kernwright.ledger.source import FolderSource, LedgerSource

_DIGEST = re.compile(r"[0-9a-f]{64}")
_REFERENCE = re.compile(r"blob:([0-9a-f]{64})")
_CHUNK = 1 << 20
_LARGE = 1 << 12  # Blobs of at least this many bytes are compressed. Samples shrink to a fifth.
_MOST = 1 << 30  # The largest size in bytes that a compressed blob may unpack to.

_DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)  # raised when a damaged file is unpacked


def blob_reference(digest: str) -> str:
    """Return the string by which a record's body names a blob."""
    return f"blob:{digest}"


def blob_references(value: Any) -> Iterator[str]:
    """Yield the digests of the blobs that a record's body names, in order of appearance."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if match := _REFERENCE.fullmatch(item):
                yield match[1]
        elif isinstance(item, dict):
            pending.extend(reversed(item.values()))
        elif isinstance(item, list):
            pending.extend(reversed(item))


def blob_name(digest: str) -> str:
    """Return the name of a blob's file, relative to the store: two hex digits deep, so that no folder grows huge."""
    if not _DIGEST.fullmatch(digest):
        raise LedgerError(f"{digest!r} is no blob name", "give the 64 lower-case hex digits of its SHA-256")
    return f"{digest[:2]}/{digest}"


class BlobReader:
    """Read access to the blobs of a ledger folder or archive."""

    def __init__(self, source: LedgerSource, folder: str = "blobs/") -> None:
        self._source = source
        self._folder = folder

    def _stored_name(self, digest: str) -> str:
        """Return the name of the file that holds the blob, plain or compressed."""
        plain = self._folder + blob_name(digest)
        packed = f"{plain}.gz"
        return packed if self._source.exists(packed) and not self._source.exists(plain) else plain

    def read(self, digest: str) -> bytes:
        """Return the bytes of a blob, checked against its name."""
        name = self._stored_name(digest)
        path = self._source.place / name
        try:
            data = b"".join(self._chunks(name))
        except _DAMAGED:
            data = None
        except OSError as error:
            raise ledger_failure("read the blob", path, error) from error
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise LedgerError(
                f"blob {path} was altered: its content no longer matches its name",
                "import the run again from its archive, which restores the blob",
            )
        return data

    def _chunks(self, name: str) -> Iterator[bytes]:
        with self._source.open(name) as stream:
            if not name.endswith(".gz"):
                while chunk := stream.read(_CHUNK):
                    yield chunk
                return
            yield from self._unpacked(stream)

    @staticmethod
    def _unpacked(stream: IO[bytes]) -> Iterator[bytes]:
        with gzip.open(stream) as unpacked:
            for _ in range(_MOST // _CHUNK):
                if not (chunk := unpacked.read(_CHUNK)):
                    return
                yield chunk
        raise EOFError(f"it unpacks to more than {_MOST} bytes")

    def state(self, digest: str) -> Literal["intact", "altered", "missing"]:
        """Return whether the stored bytes match the name. Reads in chunks, since samples may be large."""
        running = hashlib.sha256()
        try:
            for chunk in self._chunks(self._stored_name(digest)):
                running.update(chunk)
        except (FileNotFoundError, NotADirectoryError):
            return "missing"
        except (OSError, *_DAMAGED):
            # A file whose bytes cannot be read is as useless to a reader as one with other bytes.
            return "altered"
        return "intact" if running.hexdigest() == digest else "altered"


class BlobStore(BlobReader):
    """A folder of blobs that can be read and written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FolderSource(folder), folder="")
        self.folder = folder

    def path(self, digest: str) -> Path:
        return self.folder / blob_name(digest)

    def write(self, data: bytes) -> str:
        """Store the bytes unless they are stored already, and return their digest."""
        digest = hashlib.sha256(data).hexdigest()
        is_large = len(data) >= _LARGE
        plain = self.path(digest)
        path = plain.with_name(f"{digest}.gz") if is_large else plain
        # A damaged copy is replaced. The name determines the content, so this can only repair.
        if self.state(digest) == "intact":
            return digest
        try:
            make_folder(path.parent)
            with replacing(path) as stream:
                stream.write(gzip.compress(data, mtime=0) if is_large else data)
            if is_large:
                plain.unlink(missing_ok=True)  # A damaged plain copy would be read first.
        except OSError as error:
            raise ledger_failure("store the blob", path, error) from error
        return digest
