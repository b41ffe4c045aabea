"""ProgramCommand: a command whose words after `--` are a program that it runs."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

DASHES = "--"
_KEY = "kernwright.program"


class ProgramCommand(TyperCommand):
    """A command with options on both sides of its arguments. Everything after `--` is kept apart."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        place = args.index(DASHES) if DASHES in args else len(args)
        ctx.meta[_KEY] = args[place + 1 :] if DASHES in args else None
        return super().parse_args(ctx, args[:place])


def program_of(ctx: Any) -> list[str] | None:
    """Return the words after `--`, or None if there is no `--`."""
    found: list[str] | None = ctx.meta.get(_KEY)
    return found
