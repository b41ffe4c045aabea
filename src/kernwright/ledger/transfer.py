"""Transfer: carry runs between ledgers, through an archive or directly from another ledger folder.

Records made on another machine are imported as whole chains that were verified first, never as single lines.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from kernwright.core.errors import LedgerError
from kernwright.ledger.archive import (
    HEADS_EXCERPT,
    LEFT_OUT,
    PACKED,
    ArchiveLimits,
    heads_beside,
    read_left_out,
    unpack_archive,
    write_archive,
)
from kernwright.ledger.blobs import blob_name
from kernwright.ledger.files import ledger_failure, make_folder, replacing
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.record import canonical_json
from kernwright.ledger.source import complete_lines
from kernwright.ledger.verify import Problem, RunSummary, examine

_ASK_AGAIN = "ask for a new export of those runs; nothing was imported"


@dataclass
class ImportReport:
    """The runs of an import, by what happened to them."""

    added: list[str] = field(default_factory=list)
    extended: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)


def export_runs(root: Path | str, runs: Sequence[str], archive_path: Path | str) -> None:
    """Write runs, their blobs and their heads to one ``.tar.gz`` archive. A damaged run is refused."""
    target = Path(archive_path)
    found = _sound_runs(Path(root), runs)
    try:
        with replacing(target) as stream:
            write_archive(stream, chain([(HEADS_EXCERPT, _heads_of(found))], _members(found)))
    except OSError as error:
        raise ledger_failure("write the archive", target, error) from error


def pack_runs(root: Path, runs: Sequence[str], target: Path, left_out: Mapping[str, str] | None = None) -> None:
    """Write runs to a ``.tar.xz`` archive for a repository, with their heads beside it.

    ``left_out`` gives the reason for each run that was not packed. The archive lists them with the hash of their last
    record, so that a reader can tell a removed run from one that never existed. If ``target`` exists, it is replaced,
    and the runs that it lists stay listed.
    """
    if not target.name.endswith(PACKED):
        raise LedgerError(f"the archive must have a name in {PACKED}, got {target.name}", f"name it NAME{PACKED}")
    reasons = dict(left_out or {})
    found = _sound_runs(root, [*runs, *reasons])
    packed = {run: summary for run, summary in found.items() if run not in reasons}
    entries = {entry["run"]: entry for entry in read_left_out(target)} if target.exists() else {}
    entries |= {
        run: {"run": run, "reason": reasons[run], "records": found[run].records, "last": last.hash}
        for run in reasons
        if (last := found[run].last)
    }
    listed = "".join(canonical_json(entries[run]) + "\n" for run in sorted(entries) if run not in packed).encode()
    try:
        make_folder(target.parent)
        with replacing(target) as stream:
            write_archive(stream, chain([(LEFT_OUT, listed)] if listed else [], _members(packed)), "xz")
        with replacing(heads_beside(target)) as stream:
            stream.write(_heads_of(packed))
    except OSError as error:
        raise ledger_failure("write the archive", target, error) from error


def _sound_runs(root: Path, runs: Sequence[str]) -> dict[str, RunSummary]:
    result = examine(root, only=set(runs))
    _refuse_damage(root, result.problems, "see `kernwright ledger verify`; damaged evidence is not exported")
    for run in runs:
        if run not in result.runs:
            raise LedgerError(f"no run {run} in {root}", "list the runs with `kernwright ledger show --runs`")
    if not result.runs:
        raise LedgerError(f"no runs to export from {root}", "record a run first")
    return result.runs


def _heads_of(runs: Mapping[str, RunSummary]) -> bytes:
    heads = sorted((head for summary in runs.values() for head in summary.heads), key=lambda head: head.seq)
    if len({head.seq for head in heads}) < len(heads):
        raise LedgerError(
            "these runs come from ledgers with different heads",
            "import the archives into one ledger folder first, with `kernwright ledger import`, and export that",
        )
    return b"".join(head.line() for head in heads)


def _members(runs: Mapping[str, RunSummary]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an archive: the runs, then each blob once, in the order in which the records name them.

    Blobs of one run stand together, since they share much of their text and compress better so.
    """
    for run in sorted(runs):
        yield f"runs/{run}.jsonl", runs[run].snapshot.run_content(run)
    written: set[str] = set()
    for run in sorted(runs):
        for digest in runs[run].blobs:
            if digest not in written:
                written.add(digest)
                yield f"blobs/{blob_name(digest)}", runs[run].snapshot.blobs.read(digest)


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
    ledger.require_folder()
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
    result = examine(source)
    _refuse_damage(Path(origin), result.problems, _ASK_AGAIN)
    if not result.runs:
        raise LedgerError(f"{origin} holds no runs", "name a ledger folder or an archive made by `ledger export`")
    if unknown := sorted(set(but) - result.runs.keys()):
        raise LedgerError(f"{origin} holds no run {unknown[0]}", "list the runs with `kernwright ledger show --runs`")
    wanted = {run: summary for run, summary in result.runs.items() if run not in but}
    make_folder(ledger.root / "runs")
    report = ImportReport()
    with ledger.locked() as heads:
        covered = heads.covered()
        # All conflicts are found here, before the first byte is written.
        incoming = {run: wanted[run].snapshot.run_content(run) for run in wanted}
        held = {run: _held_already(ledger, run, data) for run, data in incoming.items()}
        for run, summary in wanted.items():
            for digest in summary.blobs:
                ledger.write_blob(summary.snapshot.blobs.read(digest))
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
