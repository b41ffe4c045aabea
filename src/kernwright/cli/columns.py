"""Columns: a list as aligned text. It starts faster than a table of Rich, and each row of a pipe is one line."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from kernwright.cli.output import say

GAP = "  "
LEAST_WIDTH = 24  # width of the last column; a narrower terminal wraps the lines itself


def print_columns(
    header: Sequence[str], rows: Sequence[tuple[Sequence[str], Sequence[str]]], numbers: Sequence[str] = ()
) -> None:
    """Print rows under a header. Cells are never cut.

    Args:
        header: the names of the columns.
        rows: for each row the cells before the last column, and the parts of the last one. A terminal shows each part
            on its own lines, wrapped to its width; elsewhere a row is one line.
        numbers: the columns that are aligned on the right.
    """
    *names, last = header
    widths = [max(map(len, column)) for column in zip(names, *(cells for cells, _ in rows), strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = zip(names, cells, widths, strict=True)
        return "".join(
            (f"{cell:>{wide}}" if name in numbers else f"{cell:<{wide}}") + GAP for name, cell, wide in aligned
        )

    indent = len(line([""] * len(names)))
    room = max(LEAST_WIDTH, shutil.get_terminal_size().columns - indent) if sys.stdout.isatty() else None
    say(f"{line(names)}{last}".rstrip())
    for cells, parts in rows:
        shown = [part for part in parts if part]
        wrapped = ["; ".join(shown)] if room is None else [each for part in shown for each in textwrap.wrap(part, room)]
        first, *others = wrapped or [""]
        say(f"{line(cells)}{first}".rstrip())
        for each in others:
            say(" " * indent + each)
