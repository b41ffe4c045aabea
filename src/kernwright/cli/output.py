"""Output of commands: lines of text, and files that are written completely or not at all."""

from __future__ import annotations

from pathlib import Path

import typer

from kernwright.core.errors import EnvironmentProblem
from kernwright.core.plain_text import plain


def say(text: object, err: bool = False) -> None:
    """Print text as it is, without wrapping. Control, bidi and invisible characters are shown escaped."""
    typer.echo(plain(text, newlines=True), err=err)


def refuse_unwritable(path: Path) -> None:
    """Raise an error before the work starts if a file cannot be written.

    The check writes a file, because root passes every check of permissions.
    """
    part = path.with_name(path.name + ".part")
    try:
        part.touch()
        part.unlink()
    except OSError as error:
        raise EnvironmentProblem(
            f"{path} cannot be written: {error.strerror}", f"make {path.resolve().parent} a writable folder"
        ) from None


def write_whole(path: Path, text: str, otherwise: str) -> None:
    """Write a file completely or not at all.

    Args:
        otherwise: the remedy if it cannot be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise EnvironmentProblem(f"{path} cannot be written: {error}", otherwise) from None
