"""CSV reports of Nsight Compute: the pages "raw" (a column per metric) and "details" (a line per metric).

The table may follow log lines of ncu or of the program (`==PROF== ...`), may be repeated, and may have the decimal
comma and the thousands separators of any locale.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.core.errors import BadFile
from kernwright.diagnose.ncu.report.metric_names import KNOWN, current_name, metric_of
from kernwright.diagnose.ncu.report.profiled_kernel import Counter, ProfiledKernel
from kernwright.diagnose.ncu.report.quantity import MixedSeparators, Notation, notation_of, to_base

EXPORT = "export it again: ncu --import FILE.ncu-rep --csv --page raw"
_DELIMITERS = (",", ";", "\t")
_ABOUT = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC",
}  # fmt: skip
_DEVICE_NAME = "device__attribute_display_name"
csv.field_size_limit(1 << 24)


@dataclass(frozen=True)
class _Line:
    number: int
    cells: list[str]


def read_csv_report(path: Path, text: str) -> list[ProfiledKernel]:
    """Return the kernels of a CSV report, in its order.

    Raises:
        BadFile: the text is not such a report, is cut off, or has none of the counters that are needed.
    """
    if not text.strip():
        raise BadFile(path, "", "the file is empty", EXPORT)
    header, lines = _table(path, text)
    page = _page_of(path, header)
    _check_complete(path, text, header, lines)
    try:
        notation = notation_of(_values(header, lines))
    except MixedSeparators as error:
        raise BadFile(path, "", str(error), EXPORT) from None
    kernels = (_raw if page == "raw" else _details)(header, lines, notation)
    if not kernels:
        raise BadFile(path, "", "the table has a header and no kernel", "capture again: no kernel was profiled")
    if not any(KNOWN & kernel.counters.keys() for kernel in kernels):
        some = ", ".join(list(kernels[0].counters)[:3]) or "no counter at all"
        raise BadFile(
            path, "", f"has none of the counters that say what bounds a kernel, only: {some}",
            "capture with --set full; another version of Nsight Compute may name the counters differently",
        )  # fmt: skip
    return kernels


def _table(path: Path, text: str) -> tuple[list[str], list[_Line]]:
    """Return the header, and the lines of the table. Lines around the table and repeated headers are left out."""
    physical = text.splitlines(keepends=True)
    start, delimiter = _find_header(path, physical)
    reader = csv.reader(_without_log(physical[start:]), delimiter=delimiter)
    header: list[str] = []
    lines = []
    for cells in reader:
        plain = [cell.strip() for cell in cells]
        if not header:
            header = plain
        elif plain != header and len(cells) > 1:
            lines.append(_Line(start + reader.line_num, plain))
    return header, lines


def _find_header(path: Path, physical: Sequence[str]) -> tuple[int, str]:
    for number, line in enumerate(physical):
        for delimiter in _DELIMITERS:
            if "Kernel Name" in next(csv.reader([line], delimiter=delimiter), []):
                return number, delimiter
    if any(line.startswith("==ERROR==") for line in physical):
        said = next(line for line in physical if line.startswith("==ERROR=="))
        raise BadFile(path, "", f"holds no kernels; ncu said: {said.strip()[:300]}", "capture again")
    if any('"Source"' in line or "Address,Source" in line for line in physical[:50]):
        raise BadFile(path, "", "is the page of source code, which has no counters of the launch", EXPORT)
    raise BadFile(path, "", 'is not a report of Nsight Compute: no table has a column "Kernel Name"', EXPORT)


def _without_log(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table without the lines that ncu logs between them."""
    return (line for line in lines if not re.match(r"==(PROF|WARNING|ERROR|NVTX)==", line))


def _page_of(path: Path, header: Sequence[str]) -> str:
    if "Invocations" in header:
        raise BadFile(path, "", "is a summary over several launches", "export it without --print-summary")
    if "ID" not in header:
        raise BadFile(path, "", 'has a table without the column "ID"', EXPORT)
    if "Metric Name" in header and "Metric Value" in header:
        return "details"
    if any("__" in name for name in header):
        return "raw"
    raise BadFile(path, "", f"is another page of the report, with the columns {', '.join(header[:8])}", EXPORT)


def _check_complete(path: Path, text: str, header: Sequence[str], lines: list[_Line]) -> None:
    """Remove lines that are not part of the table, such as output of the profiled program. Refuse an incomplete line.

    On the page of details a line of a counter ends after its value, and only a line of a rule has all columns.
    """
    place = header.index("ID")
    least = 1 + header.index("Metric Value") if "Metric Value" in header else len(header)
    kept = []
    for line in lines:
        if least <= len(line.cells) <= len(header):
            kept.append(_Line(line.number, line.cells + [""] * (len(header) - len(line.cells))))
        elif place < len(line.cells) and re.fullmatch(r"\d*", line.cells[place]):
            problem = f"has {len(line.cells)} cells, and the header has {len(header)}: the file is cut off or damaged"
            raise BadFile(path, f"line {line.number}", problem, EXPORT)
    last = text.rstrip("\n").rpartition("\n")[2]
    if (kept and last.startswith('"') and last.count('"') % 2) or (not lines and not text.endswith("\n")):
        raise BadFile(path, "", "the last line is cut off", EXPORT)
    lines[:] = kept


def _values(header: Sequence[str], lines: Sequence[_Line]) -> Iterator[str]:
    """Yield the cells that hold values of counters."""
    is_value = [name == "Metric Value" if "Metric Value" in header else name not in _ABOUT for name in header]
    for line in lines:
        yield from (cell for cell, wanted in zip(line.cells, is_value, strict=True) if wanted)


def _raw(header: Sequence[str], lines: Sequence[_Line], notation: Notation) -> list[ProfiledKernel]:
    units: dict[str, str] = {}
    kernels: list[ProfiledKernel] = []
    for line in lines:
        row = dict(zip(header, line.cells, strict=True))
        if not row["ID"]:
            units = row
            continue
        counters: dict[str, Counter] = {}
        for name in header:
            if name not in _ABOUT:
                _add(counters, name, row[name], units.get(name, ""), name, notation)
        kernels.append(_kernel(len(kernels), row, counters))
    return kernels


def _details(header: Sequence[str], lines: Sequence[_Line], notation: Notation) -> list[ProfiledKernel]:
    launches: dict[tuple[str, str, str], tuple[dict[str, str], dict[str, Counter]]] = {}
    for line in lines:
        row = dict(zip(header, line.cells, strict=True))
        key = (row.get("Host Name", ""), row.get("Process ID", ""), row["ID"])
        _, counters = launches.setdefault(key, (row, {}))
        if label := row["Metric Name"]:
            unit = row.get("Metric Unit", "")
            metric = metric_of(label, to_base(0.0, unit)[1])
            _add(counters, metric, row["Metric Value"], unit, label, notation)
    return [_kernel(number, row, counters) for number, (row, counters) in enumerate(launches.values())]


def _add(counters: dict[str, Counter], name: str, text: str, unit: str, shown: str, notation: Notation) -> None:
    """Add a counter, if the cell holds a number. A counter of an older name is also kept under today's name."""
    value = notation.number(text)
    if value is None:
        return
    counter = Counter(*to_base(value, unit), shown)
    if name not in counters or name == shown:
        counters[name] = counter
    counters.setdefault(current_name(name), counter)


def _kernel(number: int, row: dict[str, str], counters: dict[str, Counter]) -> ProfiledKernel:
    return ProfiledKernel(
        number=number,
        name=row["Kernel Name"],
        grid=_sizes(row.get("Grid Size", "")),
        block=_sizes(row.get("Block Size", "")),
        device=row.get(_DEVICE_NAME) or None,
        capability=row.get("CC", "").replace(",", ".") or None,
        counters=counters,
    )


def _sizes(text: str) -> tuple[int, ...]:
    """Return the sizes of a cell such as "(2106, 3, 1)". Thousands separators inside of a size are removed."""
    inner = text.strip().strip("()")
    parts = [re.sub(r"\D", "", part) for part in re.split(r",\s+|x", inner)]
    return tuple(int(part) for part in parts if part)
