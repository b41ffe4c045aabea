"""FileSnapshot: digests of the files that a verdict depends on, taken when the judgement began."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
SOURCES = (".py", ".c", ".cc", ".cu", ".cuh", ".h", ".toml", ".jsonl")


@dataclass(frozen=True)
class FileSnapshot:
    """Digests by path. Walls should keep a worker from these files; this finds out where they did not."""

    digests: dict[Path, str]

    @classmethod
    def over(cls, *places: Path) -> FileSnapshot:
        """Sources below folders; and files."""
        found = (path for place in places for path in place.rglob("*") if path.suffix in SOURCES)
        return cls({path: _digest(path) for path in (*places, *found) if path.is_file()})

    def broken(self) -> list[Path]:
        """Files that are gone or hold something else now."""
        return sorted(path for path, digest in self.digests.items() if _digest(path) != digest)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
