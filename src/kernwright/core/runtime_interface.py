"""Names that the runtime and the judge agree on, so that the judge does not import the runtime."""

from __future__ import annotations

from pathlib import Path

BUILDS_VARIABLE = "KERNWRIGHT_BUILDS"  # environment variable: folders of libraries that were built ahead
STRICT_VARIABLE = "KERNWRIGHT_STRICT"  # environment variable: 1 turns a fallback into an error


def checksum_file(library: Path) -> Path:
    """Return the file next to a built library that holds its checksum."""
    return library.with_name(library.name + ".sha256")
