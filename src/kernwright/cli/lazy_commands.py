"""Commands of the command line, each imported and built when it is first used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from kernwright.cli.program_command import ProgramCommand


@dataclass(frozen=True)
class CommandEntry:
    """The place where a command is defined, with its help.

    Args:
        target: module under `kernwright.cli` and name of its function, or of its `Typer` for a group of commands.
        panel: the panel of `kernwright --help` that lists the command.
        runs_a_program: whether the options after the first argument belong to a program.
        splits_at_dashes: whether the words after `--` are a program, and options may lie on both sides of an argument.
    """

    target: str
    panel: str
    runs_a_program: bool = False
    splits_at_dashes: bool = False

    def built(self, name: str) -> Any:
        """Import the command and return it as typer builds it."""
        module, _, attribute = self.target.partition(":")
        own = getattr(importlib.import_module(f"kernwright.cli.{module}"), attribute)
        alone = typer.Typer(add_completion=False, callback=lambda: None)
        if isinstance(own, typer.Typer):
            alone.add_typer(own, name=name, rich_help_panel=self.panel)
        else:
            settings = {"allow_interspersed_args": False} if self.runs_a_program else None
            kind = ProgramCommand if self.splits_at_dashes else None
            alone.command(name, cls=kind, context_settings=settings, rich_help_panel=self.panel)(own)
        group: Any = typer.main.get_command(alone)
        return group.commands[name]


class LazyCommands(Mapping[str, Any]):
    """The commands by name. Building all of them takes a quarter of the time of a short command."""

    def __init__(self, entries: Mapping[str, CommandEntry]) -> None:
        self.entries = entries
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = self.entries[name].built(name)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
