"""Files of a folder: which there are, how many bytes, and one hash over all of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder_files(folder: Path) -> Iterator[Path]:
    """Every file below a folder but compiled Python, which comes and goes by itself."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(parent, name) for name in names)


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder_files(folder))


def named_files(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in folder_files(folder)}


def digest_of(files: dict[str, Path]) -> str:
    """One hash over names and what stands under them."""
    lines = (f"{name}\0{sha256(path)}\n" for name, path in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
