"""Markdown: tables, links and figures of the generated pages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernwright.core.plain_text import plain
from kernwright.judge.record.verdict import MetricResult

ABSENT = "–"
_MARKUP = re.compile(r"[\\`<>\[\]]")


def escaped(text: object) -> str:
    """Return foreign text, such as a reason or a title, for one line of a page: without links, HTML and code."""
    return _MARKUP.sub(r"\\\g<0>", plain(text)).replace("|", "/")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> list[str]:
    """Return the lines of a table.

    Args:
        head: the column headings.
        rows: the cells of each row.
        numbers: how many of the last columns are aligned to the right.
    """
    rules = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return [_line(head), f"|{'|'.join(rules)}|", *(_line(cells) for cells in rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(plain(cell).replace('|', '/') for cell in cells)} |"


def speedup(ratio: float | None) -> str:
    """Return a ratio with two decimals, in bold if it is printed as less than 1."""
    if ratio is None:
        return ABSENT
    text = f"{ratio:.2f}x"
    return f"**{text}**" if round(ratio, 2) < 1 else text


def ratio_text(result: MetricResult) -> str:
    """Return a ratio with its interval, in bold if the ratio is printed as less than 1."""
    low, high = result.interval
    text = f"{result.ratio:.2f}x ({low:.2f}–{high:.2f})"
    return f"**{text}**" if round(result.ratio, 2) < 1 else text


def time_text(time: float) -> str:
    """Return a time in microseconds."""
    return f"{time:.2f}" if time < 10 else f"{time:.1f}"


def share_text(share: float | None) -> str:
    """Return a share as a percentage."""
    return ABSENT if share is None else f"{share:.0%}"


def image(words: str, place: str) -> list[str]:
    """Return the lines of an image, with an empty line before it."""
    return ["", f"![{words}]({place})"]


def path_from(page: Path, to: Path) -> str:
    """Return the relative path of a link on a page."""
    return Path(os.path.relpath(to.absolute(), page.absolute().parent)).as_posix()


def contents(headings: Iterable[str]) -> list[str]:
    """Return a table of contents: one link per heading of the page."""
    return [f"- [{heading}](#{anchor(heading)})" for heading in headings]


def anchor(heading: str) -> str:
    """Return the anchor that Markdown hosts give to a heading."""
    kept = "".join(character for character in heading.lower() if character.isalnum() or character in " -_")
    return kept.replace(" ", "-")
