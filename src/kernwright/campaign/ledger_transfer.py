"""Carry runs between ledgers: to one archive, and from an archive or another ledger folder.

Records made on another machine come in as whole chains that were verified first, never as single lines. The
archive is a gzipped tar of ``runs/``, ``blobs/`` and ``heads-excerpt.jsonl``; the same runs always give the
same bytes, and unpacked it is a folder that ``verify`` and ``import_runs`` accept as well.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kernwright.campaign.blobs import BlobStore, ledger_failure, make_folder, replacing
from kernwright.campaign.ledger import Ledger, complete_lines, is_run_id
from kernwright.campaign.ledger_check import HEADS_EXCERPT, Problem, RunSummary, Snapshot, examine
from kernwright.core.errors import LedgerError

_CHUNK = 1 << 20
_BLOB_MEMBER = re.compile(r"blobs/([0-9a-f]{2})/\1[0-9a-f]{62}")
_ASK_AGAIN = "ask for a new export of those runs; nothing was imported"


@dataclass(frozen=True)
class ArchiveLimits:
    """What an honest archive stays well below; more is refused before it can fill the memory or the disk."""

    member_bytes: int = 1 << 30
    total_bytes: int = 8 << 30
    members: int = 200_000


@dataclass
class ImportReport:
    """What an import did, run by run."""

    added: list[str] = field(default_factory=list)
    extended: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)


def export_runs(root: Path | str, runs: Sequence[str], archive_path: Path | str) -> None:
    """Write the runs, their blobs and their heads to one archive; a damaged run is refused."""
    root, target = Path(root), Path(archive_path)
    snapshot = Snapshot.take(root)
    result = examine(snapshot, only=set(runs))
    _refuse_damage(root, result.problems, "see `kernwright ledger verify`; damaged evidence is not exported")
    for run in runs:
        if run not in result.runs:
            raise LedgerError(f"no run {run} in {root}", "list the runs with `kernwright ledger show`")
    if not result.runs:
        raise LedgerError(f"no runs to export from {root}", "record a run first")
    try:
        with replacing(target) as stream:
            _write_archive(stream, snapshot, result.runs)
    except OSError as error:
        raise ledger_failure("write the archive", target, error) from error


def _write_archive(stream: IO[bytes], snapshot: Snapshot, runs: dict[str, RunSummary]) -> None:
    blobs = BlobStore(snapshot.root / "blobs")
    heads = sorted((head for summary in runs.values() for head in summary.heads), key=lambda head: head.seq)
    # No file name, time or owner goes in, so that equal evidence makes an equal archive.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        _add(archive, HEADS_EXCERPT, b"".join(head.line() for head in heads))
        for run in sorted(runs):
            _add(archive, f"runs/{run}.jsonl", _whole_lines(snapshot, run))
        for digest in sorted({digest for summary in runs.values() for digest in summary.blobs}):
            _add(archive, f"blobs/{digest[:2]}/{digest}", blobs.read(digest))


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def _whole_lines(snapshot: Snapshot, run: str) -> bytes:
    return b"".join(line + b"\n" for line in snapshot.run_lines(run))


def _refuse_damage(source: Path, problems: list[Problem], remedy: str) -> None:
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:8])
        more = f"\n  and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise LedgerError(f"{source} is not what was written:{shown}{more}", remedy)


def import_runs(
    root: Path | str, source: Path | str, limits: ArchiveLimits | None = None, but: Collection[str] = ()
) -> ImportReport:
    """Take in the runs of an archive or a ledger folder. All of it is verified before anything is written.

    A run that is here already stays as it is, or grows if the source has the same records and more. Doing it
    twice changes nothing, and doing it again mends an import that was interrupted. `but`: runs that stay behind.
    """
    ledger, source = Ledger(root), Path(source)
    try:
        if not source.exists():
            raise LedgerError(f"no archive or ledger folder at {source}", "check the path of what you import")
        if source.is_dir():
            return _import_folder(ledger, source, source.resolve().name, but)
        with tempfile.TemporaryDirectory(prefix="kernwright-import-") as staging:
            _unpack(source, Path(staging), limits or ArchiveLimits())
            return _import_folder(ledger, Path(staging), source.name, but)
    except OSError as error:
        raise ledger_failure("import into", ledger.root, error) from error


def _import_folder(ledger: Ledger, source: Path, origin: str, but: Collection[str]) -> ImportReport:
    snapshot = Snapshot.take(source)
    result = examine(snapshot)
    _refuse_damage(Path(origin), result.problems, _ASK_AGAIN)
    if not result.runs:
        raise LedgerError(f"{origin} holds no runs", "name a ledger folder or an archive made by `ledger export`")
    if unknown := sorted(set(but) - result.runs.keys()):
        raise LedgerError(f"{origin} holds no run {unknown[0]}", "list the runs with `kernwright ledger show`")
    wanted = {run: summary for run, summary in result.runs.items() if run not in but}
    make_folder(ledger.root / "runs")
    report = ImportReport()
    with ledger.locked() as heads:
        covered = heads.covered()
        # Every conflict is found here, before the first byte is written.
        incoming = {run: _whole_lines(snapshot, run) for run in wanted}
        held = {run: _held_already(ledger, run, data) for run, data in incoming.items()}
        for run, summary in wanted.items():
            for digest in summary.blobs:
                ledger.blobs.write(BlobStore(source / "blobs").read(digest))
            if len(held[run]) < len(incoming[run]):
                with replacing(ledger.run_path(run)) as stream:
                    stream.write(incoming[run])
                (report.extended if held[run] else report.added).append(run)
            else:
                report.unchanged.append(run)
            # Also for an unchanged run: an earlier import may have stopped between the file and its head.
            if summary.last is not None and covered.get(run, -1) < summary.last.seq:
                their_head = summary.heads[-1].hash if summary.heads else None
                heads.append(summary.last, origin={"source": origin, "head": their_head})
    return report


def _held_already(ledger: Ledger, run: str, incoming: bytes) -> bytes:
    """The records of this run that are here. They must agree with the incoming ones as far as both go."""
    path = ledger.run_path(run)
    if not path.exists():
        return b""
    held = b"".join(line + b"\n" for line in complete_lines(path))
    if not incoming.startswith(held) and not held.startswith(incoming):
        pairs = zip(held.splitlines(), incoming.splitlines(), strict=False)
        seq = next(seq for seq, (ours, theirs) in enumerate(pairs) if ours != theirs)
        raise LedgerError(
            f"run {run} is here already with other content: record {seq} differs",
            "one of the two was changed: `kernwright ledger verify` on each says which; nothing was imported",
        )
    return held


class _BoundedGzip(gzip.GzipFile):
    """Refuses the reads that a decompression bomb needs: one huge header, or no end."""

    ceiling = 0

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= 16 * _CHUNK or self.tell() > self.ceiling:
            raise tarfile.ReadError("it unpacks to an absurd size")
        return super().read(size)


def _unpack(source: Path, staging: Path, limits: ArchiveLimits) -> None:
    """Unpack what an export writes and nothing else: no other names, no links, no absurd sizes."""
    try:
        with _BoundedGzip(source, "rb") as squeezed:
            squeezed.ceiling = limits.total_bytes + 2048 * limits.members  # room for headers and padding
            with tarfile.open(fileobj=squeezed, mode="r:") as archive:
                total = 0
                for count, member in enumerate(archive, start=1):
                    total += member.size
                    if count > limits.members or member.size > limits.member_bytes or total > limits.total_bytes:
                        raise tarfile.ReadError(f"{member.name!r} makes it absurdly large")
                    _unpack_member(archive, member, staging)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RecursionError) as error:
        raise LedgerError(f"{source} is no sound ledger archive: {error}", _ASK_AGAIN) from error


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, staging: Path) -> None:
    name = member.name.removeprefix("./")
    if member.isdir():  # a repacked archive may list its folders; ours are made from the files' names
        return
    run = name.removeprefix("runs/").removesuffix(".jsonl")
    is_run_file = is_run_id(run) and name == f"runs/{run}.jsonl"
    if not (is_run_file or _BLOB_MEMBER.fullmatch(name) or name == HEADS_EXCERPT):
        raise tarfile.ReadError(f"{member.name!r} has no place in it")
    # A sparse file also counts as regular for tarfile, and may claim terabytes.
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        raise tarfile.ReadError(f"{member.name!r} is no plain file")
    content = archive.extractfile(member)
    target = staging / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if content is None or target.exists():
        raise tarfile.ReadError(f"{member.name!r} stands in it twice")
    with content, target.open("xb") as stream:
        shutil.copyfileobj(content, stream, _CHUNK)
