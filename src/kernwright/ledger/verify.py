"""Verify: find damage in a ledger and name the record, without stopping at the first problem.

It checks the bytes of every record (by its hash), its place (sequence number and the hash of the record before it), how
far each run had come (by its head), and the bytes of each blob that a record names. It cannot notice that the last
records of a run were cut off together with all later lines of ``heads.jsonl``: what remains is an older ledger. An
exported archive, or a copy of the last head's hash kept elsewhere, guards against that.

A crash is not damage. A killed writer may leave an unterminated last line, a run that is one record ahead of its head,
or a run file without a record. These become notes or nothing at all.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from kernwright.ledger.archive import HEADS_EXCERPT, sources_at
from kernwright.ledger.blobs import BlobReader, blob_references
from kernwright.ledger.files import ledger_failure, missing_ledger
from kernwright.ledger.record import HEADS, Record, UnreadableRecord, genesis, is_run_id, parse_record
from kernwright.ledger.source import LedgerSource, complete_lines

HEADS_FILE = "heads.jsonl"


class Damage(StrEnum):
    UNREADABLE = "unreadable"
    EDITED = "edited"
    REPLACED = "replaced"
    FOREIGN = "foreign"
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    MISSING = "missing"
    TRUNCATED = "truncated"
    MISSING_RUN = "missing run"
    HEADS_TRUNCATED = "heads truncated"
    BLOB_MISSING = "blob missing"
    BLOB_ALTERED = "blob altered"


@dataclass(frozen=True)
class Problem:
    """One difference from what was written. ``run`` is ``heads`` for the heads file itself."""

    where: str
    run: str
    seq: int | None
    kind: Damage
    message: str

    def __str__(self) -> str:
        record = "" if self.seq is None else f", record {self.seq}"
        text = f"{self.where}: {self.kind}: run {self.run}{record}: {self.message}"
        # A damaged file may hold any characters. The text goes to a terminal as one line.
        return "".join(c if c.isprintable() else "?" for c in text)


@dataclass
class RunSummary:
    """The content of one run: the number of records, the last record, the named blobs and the heads."""

    snapshot: Snapshot
    records: int = 0
    last: Record | None = None
    blobs: list[str] = field(default_factory=list)
    heads: list[Record] = field(default_factory=list)


@dataclass
class LedgerCheck:
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    runs: dict[str, RunSummary] = field(default_factory=dict)


@contextmanager
def _writers_paused(root: Path) -> Iterator[None]:
    """Hold the lock if there is one. A ledger without a lock file has never been written to here."""
    try:
        lock = os.open(root / ".lock", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


@dataclass(frozen=True)
class Snapshot:
    """The length of each file at one moment. Files only grow, so reading up to that length shows that moment."""

    source: LedgerSource
    run_sizes: dict[str, int]
    heads_name: str
    heads_size: int

    @classmethod
    def of(cls, source: LedgerSource) -> Snapshot:
        files = [name for name in source.names("runs") if name.endswith(".jsonl")]
        sizes = {name.removesuffix(".jsonl"): source.size(f"runs/{name}") for name in files}
        heads = next((name for name in (HEADS_FILE, HEADS_EXCERPT) if source.exists(name)), None)
        return cls(source, sizes, heads or HEADS_FILE, source.size(heads) if heads else 0)

    def run_lines(self, run: str) -> Iterator[bytes]:
        yield from complete_lines(self.source.open(f"runs/{run}.jsonl"), self.run_sizes[run])

    def run_content(self, run: str) -> bytes:
        """Return the terminated lines of a run."""
        return b"".join(line + b"\n" for line in self.run_lines(run))

    @property
    def blobs(self) -> BlobReader:
        return BlobReader(self.source)

    def head_lines(self) -> Iterator[bytes]:
        if self.heads_size:
            yield from complete_lines(self.source.open(self.heads_name), self.heads_size)


@dataclass
class _Chain:
    """The individually sound records of one file, and the problems of the rest."""

    name: str
    label: str
    problems: list[Problem]
    found: dict[int, tuple[int, Record]] = field(default_factory=dict)
    spoiled: set[int] = field(default_factory=set)
    highest: int = -1

    def report(self, line: int, seq: int | None, kind: Damage, message: str) -> None:
        self.problems.append(Problem(f"{self.label}:{line}", self.name, seq, kind, message))

    def read(self, lines: Iterator[bytes]) -> None:
        previous, number = -1, 1
        try:
            for line in lines:
                previous = self._take(number, line, previous)
                self.highest = max(self.highest, previous)
                number += 1
        except OSError as error:
            self.report(number, None, Damage.UNREADABLE, f"cannot read on: {error.strerror}")

    def _take(self, number: int, line: bytes, previous: int) -> int:
        """Check one line and return the sequence number that the next line should follow."""
        # The number in a damaged line is not reliable. The place of the line shows which record it was.
        presumed = previous + 1
        try:
            record = parse_record(line)
        except UnreadableRecord as error:
            self.spoiled.add(presumed)
            self.report(number, presumed, Damage.UNREADABLE, f"this line is no record: {error}")
            return presumed
        if not record.is_as_written(line):
            self.spoiled.add(presumed)
            self.report(number, presumed, Damage.EDITED, "its content does not match its hash")
            return presumed
        if record.run != self.name:
            self.report(number, record.seq, Damage.FOREIGN, f"this record belongs to run {record.run!r}")
            return previous
        if record.seq in self.found:
            first, twin = self.found[record.seq]
            if twin.hash == record.hash:
                self.report(number, record.seq, Damage.DUPLICATE, f"the same record stands in line {first}")
            else:
                self.report(number, record.seq, Damage.FOREIGN, f"line {first} holds another record {record.seq}")
            return previous
        if record.seq < self.highest:
            self.report(number, record.seq, Damage.REORDERED, "it stands after later records")
        self.found[record.seq] = (number, record)
        return record.seq

    def check_links(self, *, gaps_allowed: bool) -> None:
        """Check that each record follows the one before it, and that no record is missing."""
        absent: list[int] = []
        for seq in range(self.highest + 1) if not gaps_allowed else sorted(self.found):
            if seq not in self.found:
                absent += [] if seq in self.spoiled else [seq]
                continue
            number, record = self.found[seq]
            if absent:
                names = f"{absent[0]}" if len(absent) == 1 else f"{absent[0]} to {absent[-1]}"
                self.report(number, absent[0], Damage.MISSING, f"record {names} should stand before record {seq}")
                absent = []
            if seq == 0 and record.prev != genesis(self.name):
                self.report(number, 0, Damage.FOREIGN, "it does not begin this chain")
            if seq - 1 in self.found and record.prev != self.found[seq - 1][1].hash:
                message = f"it follows another record {seq - 1} than the one that stands here"
                self.report(number, seq, Damage.REPLACED, message)


class _Checker:
    def __init__(self, snapshot: Snapshot, only: Container[str] | None) -> None:
        self.snapshot = snapshot
        self.only = only
        self.result = LedgerCheck()
        self.blobs = BlobReader(snapshot.source)
        self.blob_states: dict[str, str] = {}
        self.heads: dict[str, list[tuple[int, Record]]] = {}

    def read_heads(self) -> None:
        label = self.snapshot.heads_name
        chain = _Chain(name=HEADS, label=label, problems=self.result.problems)
        chain.read(self.snapshot.head_lines())
        chain.check_links(gaps_allowed=label == HEADS_EXCERPT)
        self._note_torn_end(label, self.snapshot.heads_size)
        for seq, (number, head) in sorted(chain.found.items()):
            run, at, digest = (head.body.get(key) for key in ("run", "seq", "record"))
            if not isinstance(run, str) or not isinstance(at, int) or not isinstance(digest, str):
                chain.report(number, seq, Damage.UNREADABLE, "this record names no run, sequence number and hash")
                continue
            known = self.heads.setdefault(run, [])
            if known and at < known[-1][1].body["seq"]:
                chain.report(number, seq, Damage.REPLACED, f"run {run} goes back to record {at}")
                continue
            known.append((number, head))

    def read_run(self, run: str) -> None:
        label = f"runs/{run}.jsonl"
        problems = self.result.problems
        if not is_run_id(run):
            problems.append(Problem(label, run, None, Damage.FOREIGN, "this file's name is no run id"))
            return
        chain = _Chain(name=run, label=label, problems=problems)
        chain.read(self.snapshot.run_lines(run))
        chain.check_links(gaps_allowed=False)
        self._note_torn_end(label, self.snapshot.run_sizes[run])
        heads = self.heads.get(run, [])
        self._compare_with_heads(chain, heads)
        summary = RunSummary(self.snapshot, records=len(chain.found), heads=[head for _, head in heads])
        for seq, (number, record) in sorted(chain.found.items()):
            summary.last = record
            for digest in blob_references(record.body):
                summary.blobs.append(digest)
                self._check_blob(chain, number, seq, digest)
        if summary.last is None and not heads and not chain.spoiled:
            self.result.notes.append(f"{label}: no record; its writer stopped before the first one")
        else:
            self.result.runs[run] = summary

    def _compare_with_heads(self, chain: _Chain, heads: list[tuple[int, Record]]) -> None:
        named = -1
        for number, head in heads:
            named = head.body["seq"]
            line, record = chain.found.get(named, (0, None))
            if record is not None and record.hash != head.body["record"]:
                message = f"it is not the record that was written: see {self.snapshot.heads_name}:{number}"
                chain.report(line, named, Damage.REPLACED, message)
        highest = chain.highest
        if named > highest:
            lost = f"record {named} is" if named == highest + 1 else f"records {highest + 1} to {named} are"
            message = f"{lost} gone from the end: {self.snapshot.heads_name}:{heads[-1][0]} says so"
            chain.report(highest + 2, highest + 1, Damage.TRUNCATED, message)
        # A crash between a record and its head ends the run, so that it cannot happen twice in one run.
        if max(chain.found, default=-1) > named + 1:
            unheaded = f"records {named + 1} to {highest} have no head"
            message = f"{unheaded}: heads were cut off, or an import was interrupted (repeat it)"
            where, kind = self.snapshot.heads_name, Damage.HEADS_TRUNCATED
            self.result.problems.append(Problem(where, chain.name, named + 1, kind, message))

    def _check_blob(self, chain: _Chain, number: int, seq: int, digest: str) -> None:
        state = self.blob_states.get(digest) or self.blobs.state(digest)
        self.blob_states[digest] = state
        if state == "missing":
            chain.report(number, seq, Damage.BLOB_MISSING, f"its blob {digest} is gone")
        elif state == "altered":
            chain.report(number, seq, Damage.BLOB_ALTERED, f"its blob {digest} has other content")

    def _note_torn_end(self, label: str, size: int) -> None:
        if size == 0:
            return
        try:
            with self.snapshot.source.open(label) as stream:
                stream.seek(size - 1)
                torn = stream.read(1) != b"\n"
        except OSError:  # Reading the same file has already reported a problem.
            return
        if torn:
            self.result.notes.append(f"{label}: an unfinished write at the end, never acknowledged, is ignored")

    def examine(self) -> LedgerCheck:
        self.read_heads()
        for run in self.snapshot.run_sizes:
            if self.only is None or run in self.only:
                self.read_run(run)
        for run, heads in self.heads.items():
            if run not in self.snapshot.run_sizes and (self.only is None or run in self.only):
                number, head = heads[-1]
                message = f"its file is gone; it had {head.body['seq'] + 1} records"
                where = f"{self.snapshot.heads_name}:{number}"
                self.result.problems.append(Problem(where, run, None, Damage.MISSING_RUN, message))
        return self.result


def snapshots_of(root: Path) -> list[Snapshot]:
    """Return a snapshot of a ledger folder, or one of each archive at ``root``."""
    if not root.exists():
        raise missing_ledger(root)
    try:
        with _writers_paused(root):
            return [Snapshot.of(source) for source in sources_at(root)]
    except OSError as error:
        raise ledger_failure("read the ledger", root, error) from error


def examine(root: Path, only: Container[str] | None = None) -> LedgerCheck:
    """Return all problems, all notes, and a summary of each run (or of the runs in ``only``)."""
    snapshots = snapshots_of(root)
    found = LedgerCheck()
    for snapshot in snapshots:
        part = _Checker(snapshot, only).examine()
        prefix = f"{snapshot.source.place.name}: " if len(snapshots) > 1 else ""
        found.problems += [replace(problem, where=prefix + problem.where) for problem in part.problems]
        found.notes += [prefix + note for note in part.notes]
        found.runs |= part.runs
    return found


def verify(root: Path | str) -> list[Problem]:
    """Return the problems of a ledger folder or archive; none if it is sound."""
    return examine(Path(root)).problems
