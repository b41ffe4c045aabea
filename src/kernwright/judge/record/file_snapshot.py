"""FileSnapshot: digests of the files that a verdict depends on, taken at the start of the judgement."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
SOURCES = (".py", ".c", ".cc", ".cu", ".cuh", ".h", ".toml", ".jsonl")


@dataclass(frozen=True)
class FileSnapshot:
    """Digests by path. The sandbox should keep workers from changing these files; a snapshot detects if it did not."""

    digests: dict[Path, str]

    @classmethod
    def over(cls, *paths: Path) -> FileSnapshot:
        """Take a snapshot of files, and of all source files below folders."""
        found = (path for folder in paths for path in folder.rglob("*") if path.suffix in SOURCES)
        return cls({path: _digest(path) for path in (*paths, *found) if path.is_file()})

    def changed(self) -> list[Path]:
        """Return the files that were deleted or changed since the snapshot."""
        return sorted(path for path, digest in self.digests.items() if _digest(path) != digest)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
