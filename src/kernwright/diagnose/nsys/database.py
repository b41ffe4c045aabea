"""Database: the tables of an SQLite file, read by the columns that are present."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernwright.diagnose.trace.chrome import TraceError

SQLITE_MAGIC = b"SQLite format 3\x00"
EXPORT_AGAIN = "export the report again: nsys export --type sqlite --output FILE.sqlite FILE.nsys-rep"


class Database:
    """The tables of an export. Versions of nsys differ in tables and columns. A missing value is read as None."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self.tables = frozenset(str(name) for (name,) in found)

    def rows(self, table: str, *wanted: str) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of every row; nothing if the table is missing."""
        if table not in self.tables:
            return
        present = {str(row[1]) for row in self._connection.execute(f'PRAGMA table_info("{table}")')}
        columns = ", ".join(f'"{name}"' if name in present else "NULL" for name in wanted)
        yield from self._connection.execute(f'SELECT {columns} FROM "{table}"')


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open an export for reading.

    Raises:
        TraceError: if the file is missing, damaged, or not an export of nsys.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}", "give the SQLite export of an nsys report") from None
    if start != SQLITE_MAGIC:
        raise TraceError(f"{path} is {'not an SQLite file' if start else 'empty'}", EXPORT_AGAIN)
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        found = Database(connection)
        if "StringIds" not in found.tables:
            raise TraceError(f"{path} is not an export of nsys: the SQLite file has no table StringIds", EXPORT_AGAIN)
        yield found
    except sqlite3.DatabaseError as error:
        raise TraceError(f"{path} is damaged: {error}", EXPORT_AGAIN) from None
    finally:
        connection.close()
