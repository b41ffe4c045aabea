"""SQLite exports of nsys reports, with the documented schema: columns as recent versions write them, or older ones."""

from __future__ import annotations

import sqlite3
from pathlib import Path

PROCESS = 4242
GLOBAL_PID = PROCESS << 24
GLOBAL_TID = GLOBAL_PID | 4243

ALL_TABLES = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL,"
    " greenContextId INT, streamId INT NOT NULL, correlationId INT, globalPid INT, demangledName INT NOT NULL,"
    " shortName INT NOT NULL, mangledName INT, registersPerThread INT NOT NULL, gridX INT NOT NULL, gridY INT NOT NULL,"
    " gridZ INT NOT NULL, blockX INT NOT NULL, blockY INT NOT NULL, blockZ INT NOT NULL, graphNodeId INT",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL,"
    " streamId INT NOT NULL, correlationId INT, globalPid INT, bytes INT NOT NULL, copyKind INT NOT NULL, srcKind INT,"
    " dstKind INT",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL,"
    " streamId INT NOT NULL, correlationId INT, globalPid INT, value INT NOT NULL, bytes INT NOT NULL",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INT NOT NULL, end INT NOT NULL, eventClass INT NOT NULL, globalTid INT,"
    " correlationId INT, nameId INT NOT NULL, returnValue INT NOT NULL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, streamId INT NOT"
    " NULL, correlationId INT, globalPid INT, graphId INT NOT NULL",
    "NVTX_EVENTS": "start INT NOT NULL, end INT, eventType INT NOT NULL, text TEXT, globalTid INT, textId INT, domainId"
    " INT",
    "TARGET_INFO_GPU": "id INT NOT NULL, name TEXT, smCount INT, totalMemory INT",
    "ENUM_CUDA_MEMCPY_OPER": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
}
# Columns that the first exporters did not have.
NEW_COLUMNS = ("globalPid", "greenContextId", "mangledName", "graphNodeId", "textId", "srcKind", "dstKind", "smCount")


class MadeExport:
    """An export that is filled row by row. Times are in microseconds.

    Args:
        old: leave out columns that older versions lack.
        without: tables that the export does not have.
    """

    def __init__(self, path: Path, old: bool = False, without: tuple[str, ...] = ()) -> None:
        self.path = path
        self._database = sqlite3.connect(path)
        self._strings: dict[str, int] = {}
        self._correlation = 0
        self._columns: dict[str, list[str]] = {}
        for table, columns in ALL_TABLES.items():
            if table not in without:
                kept = [c.strip() for c in columns.split(",") if not (old and c.split()[0] in NEW_COLUMNS)]
                self._columns[table] = [column.split()[0] for column in kept]
                self._database.execute(f"CREATE TABLE {table} ({', '.join(kept)})")

    def insert(self, table: str, **values: object) -> None:
        """Insert a row. Columns that the table lacks are left out, and others are 0."""
        columns = self._columns.get(table, [])
        row = [values.get(column, 0) for column in columns]
        if columns:
            marks = ", ".join("?" * len(columns))
            self._database.execute(f"INSERT INTO {table} VALUES ({marks})", row)

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.insert("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def event(self, table: str, start: float, length: float, launched: float | None, **values: object) -> None:
        """Insert an event of the GPU and the call that launched it."""
        self._correlation += 1
        known = {"correlationId": self._correlation, "globalPid": GLOBAL_PID, "streamId": 7}
        self.insert(table, **_span(start, length), **(known | values))
        if launched is not None:
            name = self.string("cudaLaunchKernel_v7000")
            call = {"globalTid": GLOBAL_TID, "correlationId": self._correlation, "nameId": name}
            self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", **_span(launched, 4.0), **call)

    def kernel(self, name: str, start: float, length: float, launched: float | None = None, **values: object) -> None:
        shape = {"gridX": 64, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
        named = {"demangledName": self.string(name), "shortName": self.string(name[:4])}
        self.event("CUPTI_ACTIVITY_KIND_KERNEL", start, length, launched, **(shape | named | values))

    def range(self, name: str, start: float, end: float, *, domain: int = 0, by_id: bool = False) -> None:
        """Insert a push/pop range, with its text in place or as a string id."""
        text = {"textId": self.string(name), "text": None} if by_id else {"text": name, "textId": None}
        about = {"eventType": 59, "globalTid": GLOBAL_TID, "domainId": domain}
        self.insert("NVTX_EVENTS", **_span(start, end - start), **about, **text)

    def close(self) -> Path:
        self._database.commit()
        self._database.close()
        return self.path


def _span(start: float, length: float) -> dict[str, int]:
    return {"start": int(start * 1000), "end": int((start + length) * 1000)}
