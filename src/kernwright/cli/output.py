"""Output: files that a command writes for its user, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from kernwright.core.errors import EnvironmentProblem


def refuse_unwritable(path: Path) -> None:
    """Before the work, not after it: by writing, since asking about permissions says little to root."""
    part = path.with_name(path.name + ".part")
    try:
        part.touch()
        part.unlink()
    except OSError as error:
        raise EnvironmentProblem(
            f"{path} cannot be written: {error.strerror}", f"make {path.resolve().parent} a writable folder"
        ) from None


def write_whole(path: Path, text: str, otherwise: str) -> None:
    """All of it or none: a reader never meets half a file. `otherwise`: where its content stands all the same."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise EnvironmentProblem(f"{path} cannot be written: {error}", otherwise) from None
