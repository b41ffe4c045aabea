"""Files of a folder: names, total size, one hash over all of them, and errors of writing."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder_files(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder except compiled Python, which the interpreter adds and removes by itself."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(parent, name) for name in names)


def folder_bytes(folder: Path) -> int:
    """Return the total size of a folder's files."""
    return sum(path.stat().st_size for path in folder_files(folder))


def named_files(folder: Path) -> dict[str, Path]:
    """Return a folder's files by their path relative to it."""
    return {path.relative_to(folder).as_posix(): path for path in folder_files(folder)}


def digest_of(files: dict[str, Path]) -> str:
    """Return one hash over the names and the contents of files."""
    lines = (f"{name}\0{sha256(path)}\n" for name, path in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def write_problem(what: str, folder: Path, error: OSError, remedy: str) -> EnvironmentProblem:
    """Return the error to raise when files cannot be written.

    Args:
        what: the object that was being written, as the subject of the message.
        folder: the folder to name where the error names no file.
        remedy: the advice for a folder that this user may not write.
    """
    full = "free some space and repeat; finished downloads are kept"
    remedies = {errno.ENOSPC: full, errno.EDQUOT: full, errno.EACCES: remedy, errno.EROFS: remedy}
    return EnvironmentProblem(
        f"{what} cannot be written: {error.filename or folder}: {error.strerror or error}",
        remedies.get(error.errno or 0, "check the folder and the disk"),
    )
