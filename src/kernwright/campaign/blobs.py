"""Files named by the SHA-256 of their content: raw samples that are too big to stand inside a ledger record.

A record refers to one with a string value of the form ``blob:<64 hex digits>``, anywhere in its body. The
hash chain covers that name, and the name covers the bytes, so a blob is as tamper-evident as its record.
Large ones lie compressed, in a file of that name with ``.gz`` behind it; the name is that of what is in it.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import re
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

from kernwright.core.errors import LedgerError

_DIGEST = re.compile(r"[0-9a-f]{64}")
_REFERENCE = re.compile(r"blob:([0-9a-f]{64})")
_CHUNK = 1 << 20
_LARGE = 1 << 12  # bytes from which on a blob is compressed: samples shrink to a fifth
_MOST = 1 << 30  # bytes that a compressed one may unpack to: more is nobody's samples

_DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)  # what unpacking says of what was never packed

_ELSEWHERE = "choose another folder with --ledger or the KERNWRIGHT_LEDGER variable"
_NO_SPACE = "free some space (or raise the quota or file size limit) and repeat; what was recorded before is intact"
_NOT_A_FOLDER = f"a file stands where a folder is needed; move it away or {_ELSEWHERE}"
_NOT_ALLOWED = f"allow this user to use that folder, or {_ELSEWHERE}"
_REMEDIES = {
    errno.ENOENT: f"list what is there with `kernwright ledger show`, or {_ELSEWHERE}",
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: _NO_SPACE,
    errno.ENOTDIR: _NOT_A_FOLDER,
    errno.EEXIST: _NOT_A_FOLDER,
    errno.EISDIR: f"a folder stands where a file is needed; move it away or {_ELSEWHERE}",
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: _NOT_ALLOWED,
}


def ledger_failure(attempt: str, path: Path, error: OSError) -> LedgerError:
    """An operating system error as one message: what was tried, where, why it failed, what to do."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0, f"check the disk and the path, or {_ELSEWHERE}")
    return LedgerError(f"cannot {attempt} {path}: {reason}", remedy)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: syncing a new file alone may lose its name in a power failure."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, durably; another process may be creating them too."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
    sync_folder(folder.parent)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a complete, durable file to ``path``: readers see the old one or the new one, never a part."""
    draft = path.with_name(f".tmp-{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):  # the first error is the one worth telling; a leftover draft is never read
            draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def blob_reference(digest: str) -> str:
    """How a record's body names a blob."""
    return f"blob:{digest}"


def blob_references(value: Any) -> Iterator[str]:
    """Digests of the blobs that a record's body names, in order of appearance."""
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


class BlobStore:
    """A folder of blobs, two hex digits deep so that no single folder grows huge."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise LedgerError(f"{digest!r} is no blob name", "give the 64 lower-case hex digits of its SHA-256")
        return self.folder / digest[:2] / digest

    def _packed(self, digest: str) -> Path:
        return self.path(digest).with_name(f"{digest}.gz")

    def write(self, data: bytes) -> str:
        """Store the bytes, or find them stored already, and return their digest."""
        digest = hashlib.sha256(data).hexdigest()
        is_large = len(data) >= _LARGE
        path = self._packed(digest) if is_large else self.path(digest)
        # A damaged copy is replaced: the name says what the content must be, so this can only repair.
        if self.state(digest) == "intact":
            return digest
        try:
            make_folder(path.parent)
            with replacing(path) as stream:
                stream.write(gzip.compress(data, mtime=0) if is_large else data)
            if is_large:
                self.path(digest).unlink(missing_ok=True)  # a damaged one, which would be read first
        except OSError as error:
            raise ledger_failure("store the blob", path, error) from error
        return digest

    def read(self, digest: str) -> bytes:
        """The bytes of a blob, checked against its name."""
        path = self._place(digest)
        try:
            data = b"".join(self._chunks(digest))
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

    def _place(self, digest: str) -> Path:
        """Where it lies, as it is or packed."""
        path, packed = self.path(digest), self._packed(digest)
        return packed if packed.exists() and not path.exists() else path

    def _chunks(self, digest: str) -> Iterator[bytes]:
        path = self._place(digest)
        if path.suffix != ".gz":
            with path.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    yield chunk
            return
        with gzip.open(path) as unpacked:
            for _ in range(_MOST // _CHUNK):
                if not (chunk := unpacked.read(_CHUNK)):
                    return
                yield chunk
        raise EOFError("it unpacks to more than any samples are")

    def state(self, digest: str) -> Literal["intact", "altered", "missing"]:
        """Whether the stored bytes are what the name says; reads in chunks, since samples may be large."""
        running = hashlib.sha256()
        try:
            for chunk in self._chunks(digest):
                running.update(chunk)
        except (FileNotFoundError, NotADirectoryError):
            return "missing"
        except (OSError, *_DAMAGED):
            # Present, but its bytes cannot be had: for a reader that is as bad as other bytes.
            return "altered"
        return "intact" if running.hexdigest() == digest else "altered"
