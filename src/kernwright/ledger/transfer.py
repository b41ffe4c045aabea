"""Transfer: carry runs between ledgers, through an archive or directly from another ledger folder.

Records made on another machine are imported as whole chains that were verified first, never as single lines.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernwright.core.errors import LedgerError
from kernwright.ledger.archive import HEADS_EXCERPT, ArchiveLimits, unpack_archive, write_archive
from kernwright.ledger.blobs import BlobReader, blob_name
from kernwright.ledger.files import ledger_failure, make_folder, replacing
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.source import complete_lines
from kernwright.ledger.verify import Problem, RunSummary, Snapshot, examine

_ASK_AGAIN = "ask for a new export of those runs; nothing was imported"


@dataclass
class ImportReport:
    """The runs of an import, by what happened to them."""

    added: list[str] = field(default_factory=list)
    extended: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)


def export_runs(root: Path | str, runs: Sequence[str], archive_path: Path | str) -> None:
    """Write runs, their blobs and their heads to one archive. A damaged run is refused."""
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
            write_archive(stream, _members(snapshot, result.runs))
    except OSError as error:
        raise ledger_failure("write the archive", target, error) from error


def _members(snapshot: Snapshot, runs: dict[str, RunSummary]) -> Iterator[tuple[str, bytes]]:
    heads = sorted((head for summary in runs.values() for head in summary.heads), key=lambda head: head.seq)
    yield HEADS_EXCERPT, b"".join(head.line() for head in heads)
    for run in sorted(runs):
        yield f"runs/{run}.jsonl", _whole_lines(snapshot, run)
    blobs = BlobReader(snapshot.source)
    for digest in sorted({digest for summary in runs.values() for digest in summary.blobs}):
        yield f"blobs/{blob_name(digest)}", blobs.read(digest)


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
    """Import the runs of an archive or a ledger folder, except those in ``but``.

    Everything is verified before anything is written. A run that is present already stays unchanged, or grows if the
    source has the same records and more. Repeating an import changes nothing, or repairs an interrupted one.
    """
    ledger, source = Ledger(root), Path(source)
    try:
        if not source.exists():
            raise LedgerError(f"no archive or ledger folder at {source}", "check the path")
        if source.is_dir():
            return _import_folder(ledger, source, source.resolve().name, but)
        with tempfile.TemporaryDirectory(prefix="kernwright-import-") as staging:
            unpack_archive(source, Path(staging), limits or ArchiveLimits(), _ASK_AGAIN)
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
    blobs = BlobReader(snapshot.source)
    make_folder(ledger.root / "runs")
    report = ImportReport()
    with ledger.locked() as heads:
        covered = heads.covered()
        # All conflicts are found here, before the first byte is written.
        incoming = {run: _whole_lines(snapshot, run) for run in wanted}
        held = {run: _held_already(ledger, run, data) for run, data in incoming.items()}
        for run, summary in wanted.items():
            for digest in summary.blobs:
                ledger.write_blob(blobs.read(digest))
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
    """Return the lines of this run that are present. They must agree with the incoming lines as far as both go."""
    path = ledger.run_path(run)
    if not path.exists():
        return b""
    held = b"".join(line + b"\n" for line in complete_lines(path.open("rb")))
    if not incoming.startswith(held) and not held.startswith(incoming):
        pairs = zip(held.splitlines(), incoming.splitlines(), strict=False)
        seq = next(seq for seq, (ours, theirs) in enumerate(pairs) if ours != theirs)
        raise LedgerError(
            f"run {run} is here already with other content: record {seq} differs",
            "one of the two was changed: `kernwright ledger verify` on each says which; nothing was imported",
        )
    return held
