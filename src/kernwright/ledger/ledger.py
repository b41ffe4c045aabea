"""The ledger: append-only evidence, one hash chain per run, and one chain of heads over all runs.

    <root>/runs/<run id>.jsonl   the records of one run; one writer, one record per line
    <root>/heads.jsonl           after each record: the run, and the hash of its last record
    <root>/blobs/                raw samples that records name
    <root>/.lock                 held (flock) while heads.jsonl grows

Each record carries the hash of the record before it, so that an edit, a deletion, a swap or an insertion breaks the
chain. Cutting records off the end of a run does not break it; the heads reveal that. A head is itself a record, of the
chain named ``heads``, so that both files have one format, one reader and one check.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernwright.core.errors import LedgerError
from kernwright.ledger.archive import archives_at, source_at
from kernwright.ledger.blobs import BlobReader, BlobStore
from kernwright.ledger.files import append_line, ledger_failure, make_folder, missing_ledger, sync_folder
from kernwright.ledger.heads import Heads
from kernwright.ledger.record import HEADS, Record, genesis, is_run_id, parse_record, read_chain
from kernwright.ledger.source import LedgerSource, complete_lines


def default_ledger_root() -> Path:
    """Return $KERNWRIGHT_LEDGER, or ``.kernwright/ledger`` below the working directory."""
    configured = os.environ.get("KERNWRIGHT_LEDGER")
    return Path(configured).expanduser() if configured else Path.cwd() / ".kernwright" / "ledger"


class Ledger:
    """One ledger: a folder, or a read-only archive of one.

    Reading needs no lock. Any number of processes may write to a folder, each its own runs.
    """

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root) if root is not None else default_ledger_root()
        self.heads_path = self.root / "heads.jsonl"

    @classmethod
    def existing(cls, root: Path | str | None = None) -> Self:
        """Return a ledger to read from. Raises LedgerError if there is none at ``root``."""
        ledger = cls(root)
        if not ledger.exists:
            raise missing_ledger(ledger.root)
        return ledger

    def beside(self, name: str) -> Path:
        """Return the path of a file that belongs to the ledger but is no record, such as digests.json."""
        return self.root.parent / name if self.root.is_file() else self.root / name

    @cached_property
    def source(self) -> LedgerSource:
        return source_at(self.root)

    @cached_property
    def blobs(self) -> BlobReader:
        return BlobReader(self.source)

    @staticmethod
    def run_name(run: str) -> str:
        """Return the name of a run's file, relative to the root."""
        if not is_run_id(run):
            raise LedgerError(f"{run!r} is no run id", "list the runs with `kernwright ledger show --runs`")
        return f"runs/{run}.jsonl"

    def run_path(self, run: str) -> Path:
        return self.root / self.run_name(run)

    def run_size(self, run: str) -> int:
        """Return the size of a run's file in bytes. It grows with each record."""
        return self.source.size(self.run_name(run))

    @contextmanager
    def locked(self) -> Iterator[Heads]:
        """Hold the ledger's lock, with the heads file open. The kernel releases the lock if the process dies."""
        lock = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            heads = Heads(self.heads_path)
            try:
                yield heads
            finally:
                heads.close()
        finally:
            os.close(lock)

    def open_run(self, provenance_body: Mapping[str, Any]) -> RunWriter:
        """Begin a run. Its record 0, of kind ``run``, says where and how the records after it were made."""
        self.require_folder()
        return RunWriter(self, provenance_body)

    def require_folder(self) -> None:
        """Raise LedgerError for an archive: archives are read-only."""
        try:
            archives = archives_at(self.root)
        except OSError as error:
            raise ledger_failure("write to", self.root, error) from error
        if archives:
            raise LedgerError(
                f"cannot write to {self.root}: {archives[0].name} is a file, and archives are read-only",
                "name a ledger folder with --ledger; `kernwright ledger import` copies an archive's runs into one",
            )

    @property
    def exists(self) -> bool:
        return self.root.exists()

    def write_blob(self, data: bytes) -> str:
        """Store raw bytes and return their SHA-256; a body names them with ``blob_reference``."""
        return BlobStore(self.root / "blobs").write(data)

    def runs(self) -> list[str]:
        """Return the ids of the runs that have a record, oldest first."""
        try:
            stems = [name.removesuffix(".jsonl") for name in self.source.names("runs") if name.endswith(".jsonl")]
            return [stem for stem in stems if is_run_id(stem) and next(self._lines(stem), None) is not None]
        except OSError as error:
            raise ledger_failure("list the runs of", self.root, error) from error

    def find_run(self, text: str) -> str:
        """Return the id of the run whose id is or contains a text."""
        known = self.runs()
        matches = [run for run in known if run == text] or [run for run in known if text in run]
        if len(matches) != 1:
            found = "no run matches" if not matches else f"{len(matches)} runs match"
            raise LedgerError(f"{found} {text!r} in {self.root}", "list the runs with `kernwright ledger show --runs`")
        return matches[0]

    def records(self, run: str) -> list[Record]:
        """Return the records of one run, in order. Raises LedgerError if its chain is damaged."""
        path = self.run_path(run)
        try:
            return read_chain(self._lines(run), run, str(path))
        except OSError as error:
            raise ledger_failure("read", path, error) from error

    def _lines(self, run: str) -> Iterator[bytes]:
        return complete_lines(self.source.open(self.run_name(run)))

    def heads(self) -> list[Record]:
        """Return the chain of heads; none where nothing was written yet."""
        if not self.source.exists("heads.jsonl"):
            return []
        return read_chain(complete_lines(self.source.open("heads.jsonl")), HEADS, str(self.heads_path))

    def all_records(self) -> Iterator[Record]:
        for run in self.runs():
            yield from self.records(run)


class RunWriter:
    """Appends to one run, from any thread of the process that opened the run."""

    def __init__(self, ledger: Ledger, provenance_body: Mapping[str, Any]) -> None:
        self.run = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}Z-{secrets.token_hex(4)}"
        self._ledger = ledger
        self._path = ledger.run_path(self.run)
        self._turn = threading.Lock()
        self._owner = os.getpid()
        self._last: Record | None = None
        self._end = 0  # offset of the end of the acknowledged records
        self._unsettled = False  # whether an unacknowledged write may follow that end
        self._closed = False
        try:
            make_folder(self._path.parent)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o666)
        except OSError as error:
            raise ledger_failure("create the run", self._path, error) from error
        try:
            sync_folder(self._path.parent)
            self.append("run", provenance_body)
        except BaseException as error:
            self.close()
            with suppress(OSError):  # An empty run file is no run. The first error is the one to report.
                if self._path.stat().st_size == 0:
                    self._path.unlink()
            if isinstance(error, OSError):
                raise ledger_failure("create the run", self._path, error) from error
            raise

    def append(self, kind: str, body: Mapping[str, Any]) -> Record:
        """Append a record. When this returns, the record and its head are on the disk."""
        with self._turn:
            if self._closed or self._owner != os.getpid():
                reason = "is closed" if self._closed else "belongs to the process that opened it"
                raise LedgerError(f"the writer of run {self.run} {reason}", "open a run of your own")
            try:
                self._settle()
                seq, prev = (self._last.seq + 1, self._last.hash) if self._last else (0, genesis(self.run))
                record = Record.sealed(self.run, seq, kind, prev, body)
                # From here on the append may stop half-way, for instance by a keyboard interrupt.
                self._unsettled = True
                append_line(self._fd, record.line())
                with self._ledger.locked() as heads:
                    heads.append(record)
            except (OSError, LedgerError) as error:
                with suppress(OSError):  # It stays unsettled then and is settled before the next record.
                    self._settle()
                if isinstance(error, OSError):
                    raise ledger_failure("append to", self._path, error) from error
                raise
            self._accept(record)
            return record

    def blob(self, data: bytes) -> str:
        """Store raw bytes and return their SHA-256; a body names them with ``blob_reference``."""
        return self._ledger.write_blob(data)

    def _accept(self, record: Record) -> None:
        self._last, self._end = record, self._end + len(record.line())
        self._unsettled = False

    def _settle(self) -> None:
        """Undo an interrupted append. If its head was recorded, accept the record instead."""
        if not self._unsettled:
            return
        left_behind = os.pread(self._fd, os.fstat(self._fd).st_size - self._end, self._end)
        line, newline, _ = left_behind.partition(b"\n")
        if newline and self._has_head(record := parse_record(line)):
            self._accept(record)
            return
        os.ftruncate(self._fd, self._end)
        os.fsync(self._fd)
        self._unsettled = False

    def _has_head(self, record: Record) -> bool:
        wanted, heads = record.hash.encode(), self._ledger.heads_path
        return heads.exists() and any(wanted in line for line in complete_lines(heads.open("rb")))

    def close(self) -> None:
        if self._closed:
            return
        if self._owner == os.getpid():
            with suppress(OSError):  # Readers accept a record without a head or half a record, as after a crash.
                self._settle()
        self._closed = True
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
