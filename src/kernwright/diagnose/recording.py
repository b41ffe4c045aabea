"""Recordings: read the recording of a profiler in any supported format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernwright.diagnose.nsys.collect import REPORT_SUFFIXES, export_report
from kernwright.diagnose.nsys.database import SQLITE_MAGIC
from kernwright.diagnose.nsys.export import read_export
from kernwright.diagnose.trace.trace import Trace, read_trace

SQLITE_SUFFIXES = (".sqlite", ".sqlite3", ".db")


def read_recording(path: Path, progress: Callable[[float], None] | None = None) -> Trace:
    """Read a Chrome trace, the SQLite export of an nsys report, or the report itself if nsys is installed.

    Raises:
        TraceError: if the file has none of these formats, is damaged, or has no events of a GPU.
    """
    if path.suffix in REPORT_SUFFIXES:
        with export_report(path) as export:
            return read_export(export)
    return read_trace(path, progress) if is_chrome_trace(path) else read_export(path)


def is_chrome_trace(path: Path) -> bool:
    """Return whether a file is read as a Chrome trace, by its name and its first bytes."""
    return path.suffix not in (*REPORT_SUFFIXES, *SQLITE_SUFFIXES) and not _starts_as_sqlite(path)


def _starts_as_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        return False
