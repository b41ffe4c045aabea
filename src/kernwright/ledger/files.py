"""Durable files: create folders, replace a file as a whole, and explain a failed file operation."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kernwright.core.errors import LedgerError

_ELSEWHERE = "choose another folder with --ledger or the KERNWRIGHT_LEDGER variable"
_NO_SPACE = "free some space (or raise the quota or file size limit) and repeat; earlier records are intact"
_NOT_A_FOLDER = f"a file exists where a folder is needed; move it away or {_ELSEWHERE}"
_NOT_ALLOWED = f"allow this user to use that folder, or {_ELSEWHERE}"
_REMEDIES = {
    errno.ENOENT: f"list the runs with `kernwright ledger show --runs`, or {_ELSEWHERE}",
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: _NO_SPACE,
    errno.ENOTDIR: _NOT_A_FOLDER,
    errno.EEXIST: _NOT_A_FOLDER,
    errno.EISDIR: f"a folder exists where a file is needed; move it away or {_ELSEWHERE}",
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: _NOT_ALLOWED,
}


def ledger_failure(attempt: str, path: Path, error: OSError) -> LedgerError:
    """Return the LedgerError for an operating system error: the attempt, the path, the cause and a remedy."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0, f"check the disk and the path, or {_ELSEWHERE}")
    return LedgerError(f"cannot {attempt} {path}: {reason}", remedy)


def missing_ledger(root: Path) -> LedgerError:
    """Return the LedgerError of every command that reads a ledger and finds none."""
    return LedgerError(f"no ledger at {root}", "name its folder or archive with --ledger or KERNWRIGHT_LEDGER")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Syncing a new file alone may lose its name in a power failure."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably. Another process may create them at the same time."""
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
    """Write a complete, durable file to ``path``. Readers see the old file or the new one, never a part of it."""
    draft = path.with_name(f".tmp-{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):  # The first error is the one to report. A leftover draft is never read.
            draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append_line(fd: int, line: bytes) -> None:
    """Append one line durably, or leave the file unchanged. The file must be open with O_APPEND by one writer only."""
    start = os.fstat(fd).st_size
    rest = memoryview(line)
    try:
        while rest:  # One write suffices unless the disk is nearly full and accepts only a part of the line.
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, start)
        raise
