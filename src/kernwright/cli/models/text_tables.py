"""Text tables of a diagnosis, on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.diagnose.profile.tables import TextTable


def print_text(lines: Sequence[str], tables: Iterable[TextTable]) -> None:
    """Print lines, then each table under its title."""
    from kernwright.cli.columns import print_columns

    for line in lines:
        say(line)
    for table in tables:
        say(f"\n{table.title}" + (f" ({table.about})" if table.about else ""))
        print_columns(table.head, [(row[:-1], [row[-1]]) for row in table.rows], table.numbers)


def print_markdown(lines: Sequence[str], tables: Iterable[TextTable]) -> None:
    """Print lines as paragraphs, then each table under a heading."""
    from kernwright.report.markdown import escaped, table

    for line in lines:
        say(f"{escaped(line)}\n")
    for each in tables:
        say(f"### {each.title}\n")
        if each.about:
            say(f"{escaped(each.about)}\n")
        head, *rows = table(each.head, [[escaped(cell) for cell in row] for row in each.rows])
        rows[0] = "|" + "|".join("---:" if name in each.numbers else "---" for name in each.head) + "|"
        say("\n".join([head, *rows, ""]))
