"""QuotedCell: one cell of a table of a generated page, which a page of the wiki quotes.

The title of a link names the cell: "row | column" or "row | column | part". The row is the first cell of the table's
row, or its first cells with commas between them. The link's anchor is the section. A part is one of several figures in
a cell: `ratio`, `theirs` and `ours` in "26.8, 25.3, 1.06x (1.04–1.08)"; `device`, `stream`, `wall`, `ratio` and `copy`
in "5.0 / 102.8 / 140.5, 15.27x (15.23–15.30), copy 20%".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from kernwright.core.errors import KernwrightError
from kernwright.wiki.page import sections_of

_MARKS = re.compile(r"[*`†]|<[^>]*>|\[([^\]]*)\]\([^)]*\)")
_OWN = re.compile(r"^(?P<theirs>[\d.,]+), (?P<ours>[\d.,]+), (?P<ratio>[\d.]+x) \((?P<interval>[^)]*)\)$")
_FIELD = re.compile(
    r"^(?P<device>[\d.–]+) / (?P<stream>[\d.–]+) / (?P<wall>[\d.–]+)"
    r"(?:, (?P<ratio>[\d.]+x) \([^)]*\))?(?:, copy (?P<copy>\d+%))?"
)
_UNITS = ("", " us", " %", " ms", " TB/s", " GB/s", " KB", " MB", " KiB", " s")


def quoted_cell(page: Path, anchor: str, title: str) -> str:
    """Return the figure that a link quotes.

    Raises:
        KernwrightError: the page has no such cell, or the cell has no such part.
    """
    row, _, rest = (part.strip() for part in title.partition("|"))
    column, _, part = (piece.strip() for piece in rest.partition("|"))
    if not column:
        raise KernwrightError(
            f'the link\'s title "{title}" names no cell', 'write "row | column" or "row | column | part"'
        )
    several, matching = [key.strip() for key in row.split(",")], list[str]()
    for header, cells in _table_rows(page, anchor):
        if column in header and (cells[0] == row or cells[: len(several)] == several):
            matching.append(cells[header.index(column)])
    where = f"{page.name}{'#' + anchor if anchor else ''}"
    if len(set(matching)) != 1:
        raise KernwrightError(
            f"{where} has {len(set(matching)) or 'no'} cell(s) {row} | {column}", "correct the title of the link"
        )
    found = _part(matching[0], part)
    if not found:
        raise KernwrightError(f'the cell {row} | {column} of {where} is "{matching[0]}"', f"it has no part {part!r}")
    return found


def agrees(text: str, value: str) -> bool:
    """Return whether a link's text is the value, with a unit if the cell has none."""
    return any(text == value + unit for unit in _UNITS) or text.replace(" ", "") == value.replace(" ", "")


def corrected(text: str, value: str) -> str:
    """Return the link's text with the value in place of its figure."""
    unit = next((unit for unit in sorted(_UNITS, key=len, reverse=True) if unit and text.endswith(unit)), "")
    return value + unit if not value.endswith(("%", "x")) else value


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", _MARKS.sub(r"\1", heading).casefold()).strip().replace(" ", "-")


def _part(cell: str, part: str) -> str | None:
    if not part:
        return cell
    for pattern in (_OWN, _FIELD):
        match = pattern.match(cell)
        if match and part in match.groupdict():
            return match[part]
    return None


def _table_rows(page: Path, anchor: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    for heading, header, cells in _rows_of(page, page.stat().st_mtime_ns):
        if not anchor or slug(heading) == anchor:
            yield header, list(cells)


@lru_cache(maxsize=256)
def _rows_of(page: Path, _changed: int) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    """Return heading, header and cells of every row of every table in a page."""
    found = []
    for section in sections_of(page.read_text(encoding="utf-8")):
        header: tuple[str, ...] | None = None
        for line in section.text.splitlines():
            if not line.lstrip().startswith("|"):
                header = None
            elif re.fullmatch(r"\s*\|[\s:|-]+\|\s*", line):
                continue
            else:
                cells = tuple(_MARKS.sub(r"\1", cell).strip() for cell in line.strip().strip("|").split("|"))
                if header is None:
                    header = cells
                else:
                    found.append((section.heading, header, cells))
    return tuple(found)
