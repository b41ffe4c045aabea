"""Heads: the chain that names the last record of every run, so that a run cut off at its end is noticed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernwright.core.errors import LedgerError
from kernwright.ledger.files import append_line, sync_folder
from kernwright.ledger.record import HEADS, VERIFY, Record, UnreadableRecord, genesis, parse_record, read_chain
from kernwright.ledger.source import complete_lines


class Heads:
    """The open heads file. It exists only while the ledger's lock is held."""

    def __init__(self, path: Path) -> None:
        self._path = path
        is_new = not path.exists()
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if is_new:
                sync_folder(path.parent)
            self._last = self._settle()
        except BaseException:
            self.close()
            raise

    def _settle(self) -> Record | None:
        """Cut off the unterminated line that a killed writer left, and return the last head."""
        start = size = os.fstat(self._fd).st_size
        tail = b""
        while start > 0 and tail.count(b"\n") < 2:
            step = min(start, 1 << 16)
            start -= step
            tail = os.pread(self._fd, step, start) + tail
        finished, _, torn = tail.rpartition(b"\n")
        if torn:
            os.ftruncate(self._fd, size - len(torn))
        if not finished and size == len(torn):
            return None
        line = finished.rpartition(b"\n")[2]
        try:
            last = parse_record(line)
        except UnreadableRecord as error:
            raise LedgerError(f"{self._path}: the last head is unreadable: {error}", VERIFY) from error
        if not last.is_as_written(line) or last.run != HEADS:
            raise LedgerError(f"{self._path}: the last head differs from the head that was written", VERIFY)
        return last

    def append(self, record: Record, origin: Mapping[str, Any] | None = None) -> None:
        """Note that ``record`` is now the last of its run. ``origin`` says where an imported run came from."""
        body: dict[str, Any] = {"run": record.run, "seq": record.seq, "record": record.hash}
        if origin is not None:
            body["origin"] = dict(origin)
        seq, prev = (self._last.seq + 1, self._last.hash) if self._last else (0, genesis(HEADS))
        head = Record.sealed(HEADS, seq, "head", prev, body)
        append_line(self._fd, head.line())
        self._last = head

    def covered(self) -> dict[str, int]:
        """Return the last sequence number that a head names, by run."""
        chain = read_chain(complete_lines(self._path.open("rb")), HEADS, str(self._path))
        named = [(head.body.get("run"), head.body.get("seq")) for head in chain]
        return {run: seq for run, seq in named if isinstance(run, str) and isinstance(seq, int)}

    def close(self) -> None:
        os.close(self._fd)
