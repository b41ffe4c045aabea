"""The ledger: append-only evidence, one hash chain per run, and one chain of heads over all runs.

    <root>/runs/<run id>.jsonl   the records of one run; one writer, one record a line
    <root>/heads.jsonl           after each record: which record is now that run's last
    <root>/blobs/                raw samples that records name
    <root>/.lock                 held (flock) while heads.jsonl grows

Each record carries the hash of the one before it, so an edit, a deletion, a swap or an insertion breaks the
chain. Cutting records off the end does not, and that is what the heads are for. A head is itself a record, of
the chain named ``heads``: both files have one format, one reader and one check.

A line without its newline is a write that nobody was told had succeeded. Readers ignore it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernwright.campaign.blobs import BlobStore, ledger_failure, make_folder, sync_folder
from kernwright.core.errors import LedgerError

HEADS = "heads"
_RUN_ID = re.compile(r"[0-9]{8}T[0-9]{12}Z-[0-9a-f]{8}")
_VERIFY = "run `kernwright ledger verify` to see all that is damaged"


class UnreadableRecord(ValueError):
    """A line that is no record at all."""


def default_ledger_root() -> Path:
    """Where the ledger lives unless told otherwise: $KERNWRIGHT_LEDGER, or below the working directory."""
    configured = os.environ.get("KERNWRIGHT_LEDGER")
    return Path(configured).expanduser() if configured else Path.cwd() / ".kernwright" / "ledger"


def is_run_id(text: str) -> bool:
    """Run ids become file names, also for runs from elsewhere: nothing but the exact form is let through."""
    return _RUN_ID.fullmatch(text) is not None


def canonical_json(value: Any) -> str:
    """The one spelling of a value that hashes are taken over. Raises for NaN and what JSON cannot hold."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def genesis(chain: str) -> str:
    """What a chain's first record follows: another value for each, so no other run's record can stand first."""
    return hashlib.sha256(f"kernwright ledger, chain {chain}".encode()).hexdigest()


class Record(BaseModel):
    """One line of evidence."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    run: str
    seq: int = Field(ge=0)
    kind: str = Field(min_length=1)
    time: str
    prev: str = Field(pattern=r"^[0-9a-f]{64}$")
    body: dict[str, Any]
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")

    @classmethod
    def sealed(cls, run: str, seq: int, kind: str, prev: str, body: Mapping[str, Any]) -> Record:
        """A new record with its hash. The body goes through JSON, so what is hashed is what a reader gets."""
        try:
            plain = json.loads(canonical_json(dict(body)))
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            draft = cls(run=run, seq=seq, kind=kind, time=now, prev=prev, body=plain, hash="0" * 64)
            return draft.model_copy(update={"hash": draft.content_hash()})
        except (TypeError, ValueError, RecursionError) as error:
            raise LedgerError(
                f"this {kind!r} record cannot be written as JSON: {error}",
                "give a kind and a body of plain JSON values: no NaN or infinity, tensors or other objects",
            ) from error

    def content_hash(self) -> str:
        """The hash that the other fields ask for."""
        return hashlib.sha256(canonical_json(self.model_dump(exclude={"hash"})).encode()).hexdigest()

    def line(self) -> bytes:
        return canonical_json(self.model_dump()).encode() + b"\n"

    def is_as_written(self, line: bytes) -> bool:
        """Whether the line is, byte for byte, what ``line`` wrote: respelled JSON is an edit too."""
        try:
            return self.line() == line + b"\n" and self.content_hash() == self.hash
        except (ValueError, RecursionError):  # infinity, or half of a surrogate pair: never written by us
            return False


def parse_record(line: bytes) -> Record:
    """Read one line. Says nothing about its hash or its place in a chain."""
    try:
        return Record.model_validate(json.loads(line.decode(), parse_constant=_refuse_constant))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UnreadableRecord(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableRecord(str(error)) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def complete_lines(path: Path, limit: int = -1) -> Iterator[bytes]:
    """The terminated lines, without their newlines, of a file's first ``limit`` bytes (-1: of all of it)."""
    left = limit
    with path.open("rb") as stream:
        while left != 0:
            line = stream.readline(left)
            if not line.endswith(b"\n"):
                return
            left -= len(line) if limit >= 0 else 0
            yield line[:-1]


def read_chain(path: Path, chain: str) -> list[Record]:
    """The records of a sound chain; a damaged one is an error, because nothing may be concluded from it."""
    records: list[Record] = []
    prev = genesis(chain)
    try:
        for seq, line in enumerate(complete_lines(path)):
            record = parse_record(line)
            if not record.is_as_written(line) or (record.run, record.seq, record.prev) != (chain, seq, prev):
                raise LedgerError(f"{path}:{seq + 1}: record {seq} is not what was written", _VERIFY)
            records.append(record)
            prev = record.hash
    except UnreadableRecord as error:
        raise LedgerError(f"{path}:{len(records) + 1}: unreadable record: {error}", _VERIFY) from error
    except OSError as error:
        raise ledger_failure("read", path, error) from error
    return records


def append_line(fd: int, line: bytes) -> None:
    """Append one line durably, or leave the file as it was. Needs O_APPEND and no other writer."""
    start = os.fstat(fd).st_size
    rest = memoryview(line)
    try:
        while rest:  # one write, unless the disk is nearly full and takes only a part before it reports an error
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, start)
        raise


class Heads:
    """The open heads file. Exists only while the ledger's lock is held."""

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
        """Cut off the unterminated line of a writer that died, and return the last head."""
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
            raise LedgerError(f"{self._path}: the last head is unreadable: {error}", _VERIFY) from error
        if not last.is_as_written(line) or last.run != HEADS:
            raise LedgerError(f"{self._path}: the last head is not what was written", _VERIFY)
        return last

    def append(self, record: Record, origin: Mapping[str, Any] | None = None) -> None:
        """Note that ``record`` is now its run's last; ``origin`` says where an imported run came from."""
        body: dict[str, Any] = {"run": record.run, "seq": record.seq, "record": record.hash}
        if origin is not None:
            body["origin"] = dict(origin)
        seq, prev = (self._last.seq + 1, self._last.hash) if self._last else (0, genesis(HEADS))
        head = Record.sealed(HEADS, seq, "head", prev, body)
        append_line(self._fd, head.line())
        self._last = head

    def covered(self) -> dict[str, int]:
        """For each run, the last sequence number that a head names."""
        named = [(head.body.get("run"), head.body.get("seq")) for head in read_chain(self._path, HEADS)]
        return {run: seq for run, seq in named if isinstance(run, str) and isinstance(seq, int)}

    def close(self) -> None:
        os.close(self._fd)


class Ledger:
    """One ledger folder. Reading needs no lock; any number of processes may each write runs of their own."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root) if root is not None else default_ledger_root()
        self.blobs = BlobStore(self.root / "blobs")
        self.heads_path = self.root / "heads.jsonl"

    def run_path(self, run: str) -> Path:
        if not is_run_id(run):
            raise LedgerError(f"{run!r} is no run id", "list the runs with `kernwright ledger show`")
        return self.root / "runs" / f"{run}.jsonl"

    @contextmanager
    def locked(self) -> Iterator[Heads]:
        """Hold the ledger's lock, with the heads file open. The kernel frees the lock if the process dies."""
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
        """Begin a run; its record 0, of kind ``run``, says where and how everything after it was made."""
        return RunWriter(self, provenance_body)

    def runs(self) -> list[str]:
        """Ids of the runs that have a record, oldest first."""
        try:
            files = sorted((self.root / "runs").iterdir())
            named = [f for f in files if f.suffix == ".jsonl" and is_run_id(f.stem)]
            return [f.stem for f in named if next(complete_lines(f), None) is not None]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ledger_failure("list the runs of", self.root, error) from error

    def records(self, run: str) -> list[Record]:
        """The records of one run, in order; raises LedgerError if its chain is damaged."""
        return read_chain(self.run_path(run), run)

    def all_records(self) -> Iterator[Record]:
        for run in self.runs():
            yield from self.records(run)


class RunWriter:
    """Appends to one run, from any thread of the process that opened it."""

    def __init__(self, ledger: Ledger, provenance_body: Mapping[str, Any]) -> None:
        self.run = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}Z-{secrets.token_hex(4)}"
        self._ledger = ledger
        self._path = ledger.run_path(self.run)
        self._turn = threading.Lock()
        self._owner = os.getpid()
        self._last: Record | None = None
        self._end = 0  # where the acknowledged records end
        self._unsettled = False  # whether something may stand behind that end
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
            with suppress(OSError):  # an empty run file is no run; the first error is the one to tell
                if self._path.stat().st_size == 0:
                    self._path.unlink()
            if isinstance(error, OSError):
                raise ledger_failure("create the run", self._path, error) from error
            raise

    def append(self, kind: str, body: Mapping[str, Any]) -> Record:
        """Record something. When this returns, the record and its head are on the disk."""
        with self._turn:
            if self._closed or self._owner != os.getpid():
                reason = "is closed" if self._closed else "belongs to the process that opened it"
                raise LedgerError(f"the writer of run {self.run} {reason}", "open a run of your own")
            try:
                self._settle()
                seq, prev = (self._last.seq + 1, self._last.hash) if self._last else (0, genesis(self.run))
                record = Record.sealed(self.run, seq, kind, prev, body)
                # From here on anything may stop us half-way, a keyboard interrupt included.
                self._unsettled = True
                append_line(self._fd, record.line())
                with self._ledger.locked() as heads:
                    heads.append(record)
            except (OSError, LedgerError) as error:
                with suppress(OSError):  # stays unsettled then, and is tried again before the next record
                    self._settle()
                if isinstance(error, OSError):
                    raise ledger_failure("append to", self._path, error) from error
                raise
            self._accept(record)
            return record

    def blob(self, data: bytes) -> str:
        """Store raw bytes and return their SHA-256; name them in a body with ``blob_reference``."""
        return self._ledger.blobs.write(data)

    def _accept(self, record: Record) -> None:
        self._last, self._end = record, self._end + len(record.line())
        self._unsettled = False

    def _settle(self) -> None:
        """Undo what an interrupted append left behind, unless its head was recorded: then it counts."""
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
        return heads.exists() and any(wanted in line for line in complete_lines(heads))

    def close(self) -> None:
        if self._closed:
            return
        if self._owner == os.getpid():
            with suppress(OSError):  # a record without a head, or half a record, is what readers expect of a crash
                self._settle()
        self._closed = True
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
