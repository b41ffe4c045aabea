"""Commands in code blocks of Markdown, parsed by the command line without being run."""

from __future__ import annotations

import re
import shlex
from typing import Any

import typer
from typer.core import TyperGroup

from kernwright.cli.main import app

CommandError = typer.BadParameter.__mro__[1]  # typer has its own copy of click, and does not export it


def code_blocks(text: str, language: str = "") -> list[str]:
    """Return the code blocks of a page in one language."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [code for named, code in fenced if named == language]


def commands_in(text: str) -> list[str]:
    """Return the lines in code blocks that call kernwright, without comments. A line with && has several calls."""
    lines = [line.partition("  #")[0].strip() for code in code_blocks(text) for line in code.splitlines()]
    calls = [call.strip() for line in lines for call in line.split(" && ")]
    return [call for call in calls if call.startswith("kernwright ")]


def parse_command(line: str) -> list[str]:
    """Parse a call of kernwright and return the names of its commands.

    Raises:
        CommandError: there is no such command or option, or an argument is missing.
    """
    _, *words = shlex.split(line)
    command: Any = typer.main.get_command(app)
    context = command.make_context("kernwright", words)
    names = []
    while isinstance(command, TyperGroup):
        _, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(command.name, words, parent=context)
        names.append(command.name)
    return names
