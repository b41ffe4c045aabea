"""Runs are transferred as verified chains: complete, once, and without overwriting other content."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.core.errors import LedgerError
from kernwright.ledger.archive import ArchiveLimits
from kernwright.ledger.blobs import blob_reference
from kernwright.ledger.ledger import Ledger, RunWriter
from kernwright.ledger.record import Record
from kernwright.ledger.transfer import export_runs, import_runs
from kernwright.ledger.verify import verify


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def write_run(ledger: Ledger, steps: int = 3) -> RunWriter:
    writer = ledger.open_run({"host": "far"})
    for number in range(steps):
        samples = writer.blob(b"samples %d" % number)
        writer.append("verdict", {"number": number, "samples": blob_reference(samples)})
    return writer


@pytest.fixture
def far(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "far")


@pytest.fixture
def near(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "near")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "runs.tar.gz"


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


def as_archive(far: Ledger, archive: Path) -> Path:
    export_runs(far.root, far.runs(), archive)
    return archive


def as_folder(far: Ledger, archive: Path) -> Path:
    return far.root


def as_unpacked_archive(far: Ledger, archive: Path) -> Path:
    return unpacked(as_archive(far, archive), archive.parent / "unpacked")


@pytest.mark.parametrize("form", [as_archive, as_folder, as_unpacked_archive])
def test_an_import_brings_everything_and_is_idempotent(
    far: Ledger, near: Ledger, archive: Path, form: Callable[[Ledger, Path], Path]
) -> None:
    local = write_run(near).run
    travelling = [write_run(far).run, write_run(far, steps=0).run]
    source = form(far, archive)
    assert import_runs(near.root, source).added == travelling
    assert near.runs() == [local, *travelling]
    for run in travelling:
        assert near.records(run) == far.records(run)
    assert near.blobs.read(near.write_blob(b"samples 2")) == b"samples 2"
    assert verify(near.root) == []
    head = near.heads()[-2]
    assert head.body["origin"]["source"] == source.name
    assert head.body["origin"]["head"] in far.heads_path.read_text()
    before = contents(near.root)
    assert import_runs(near.root, source).unchanged == travelling
    assert contents(near.root) == before


def test_an_archive_holds_only_the_chosen_runs_and_is_the_same_each_time(far: Ledger, archive: Path) -> None:
    chosen, other = write_run(far, steps=2).run, write_run(far, steps=4).run
    export_runs(far.root, [chosen], archive)
    first = archive.read_bytes()
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        assert names[:2] == ["heads-excerpt.jsonl", f"runs/{chosen}.jsonl"]
        assert len(names) == 4 and not any(other in name for name in names)
        assert {(m.mtime, m.uid, m.gid, m.uname) for m in tar.getmembers()} == {(0, 0, 0, "")}
    export_runs(far.root, [chosen], archive)
    assert archive.read_bytes() == first
    assert verify(unpacked(archive, archive.parent / "unpacked")) == []


def test_an_unfinished_write_does_not_travel(far: Ledger, near: Ledger, archive: Path) -> None:
    run = write_run(far).run
    with far.run_path(run).open("ab") as stream:
        stream.write(b'{"body":')
    import_runs(near.root, as_archive(far, archive))
    assert near.run_path(run).read_bytes().endswith(b"}\n")
    assert near.records(run) == far.records(run)


def test_a_run_that_went_on_is_extended(far: Ledger, near: Ledger, archive: Path) -> None:
    writer = write_run(far)
    import_runs(near.root, as_archive(far, archive))
    short = near.run_path(writer.run).read_bytes()
    early = archive.rename(archive.with_name("early.tar.gz"))
    writer.append("review", {"by": "someone"})
    writer.append("promotion", {})
    report = import_runs(near.root, as_archive(far, archive))
    assert (report.added, report.extended) == ([], [writer.run])
    assert near.run_path(writer.run).read_bytes().startswith(short)
    assert near.records(writer.run) == far.records(writer.run)
    assert verify(near.root) == []
    # The older archive adds nothing, and must not shorten the run.
    assert import_runs(near.root, early).unchanged == [writer.run]
    assert near.records(writer.run) == far.records(writer.run)


def fork_history(far: Ledger, near: Ledger, run: str) -> None:
    """Write the same run id with records 2 and 3 recorded anew on top of record 1: sound, but another history."""
    records = far.records(run)
    changed = [*records[:2]]
    for old in records[2:]:
        changed.append(Record.sealed(run, old.seq, old.kind, changed[-1].hash, {"forged": True}))
    near.run_path(run).parent.mkdir(parents=True)
    near.write_blob(b"samples 0")
    near.run_path(run).write_bytes(b"".join(record.line() for record in changed))
    with near.locked() as heads:
        heads.append(changed[-1])
    assert verify(near.root) == []


def test_a_conflicting_run_is_refused_and_nothing_is_written(far: Ledger, near: Ledger, archive: Path) -> None:
    run = write_run(far).run
    write_run(far)
    fork_history(far, near, run)
    before = contents(near.root)
    with pytest.raises(LedgerError, match=f"{run} is here already with other content: record 2 differs"):
        import_runs(near.root, as_archive(far, archive))
    assert contents(near.root) == before


def spoil_record(folder: Path, run: str) -> None:
    path = folder / "runs" / f"{run}.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"number":1', b'"number":7'))


def cut_run(folder: Path, run: str) -> None:
    path = folder / "runs" / f"{run}.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def drop_run(folder: Path, run: str) -> None:
    (folder / "runs" / f"{run}.jsonl").unlink()


def spoil_blob(folder: Path, run: str) -> None:
    next(p for p in (folder / "blobs").rglob("*") if p.is_file()).write_bytes(b"better samples")


def drop_blob(folder: Path, run: str) -> None:
    next(p for p in (folder / "blobs").rglob("*") if p.is_file()).unlink()


def spoil_head(folder: Path, run: str) -> None:
    path = next(folder.glob("heads*"))
    path.write_bytes(path.read_bytes().replace(b'"kind":"head"', b'"kind":"Head"', 1))


@pytest.mark.parametrize("damage", [spoil_record, cut_run, drop_run, spoil_blob, drop_blob, spoil_head])
@pytest.mark.parametrize("form", [as_folder, as_unpacked_archive, as_archive])
def test_damaged_evidence_is_refused_before_anything_is_written(
    far: Ledger,
    near: Ledger,
    archive: Path,
    damage: Callable[[Path, str], None],
    form: Callable[[Ledger, Path], Path],
) -> None:
    run, sound_run = write_run(far).run, write_run(far).run
    source = as_folder(far, archive) if form is as_folder else as_unpacked_archive(far, archive)
    damage(source, run)
    if form is as_archive:
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(source, arcname=".")
        source = archive
    with pytest.raises(LedgerError, match="is not what was written"):
        import_runs(near.root, source)
    assert not near.root.exists()
    assert sound_run not in near.runs()


@pytest.mark.parametrize("damage", [spoil_record, cut_run, drop_run, spoil_blob, drop_blob, spoil_head])
def test_damaged_evidence_is_not_exported(far: Ledger, archive: Path, damage: Callable[[Path, str], None]) -> None:
    run = write_run(far).run
    damage(far.root, run)
    with pytest.raises(LedgerError, match="is not what was written"):
        export_runs(far.root, [run], archive)
    assert not archive.exists()


def test_damage_to_one_run_does_not_hold_back_another(far: Ledger, near: Ledger, archive: Path) -> None:
    damaged, sound = write_run(far).run, write_run(far).run
    spoil_record(far.root, damaged)
    export_runs(far.root, [sound], archive)
    assert import_runs(near.root, archive).added == [sound]


def test_an_interrupted_import_is_mended_by_repeating_it(far: Ledger, near: Ledger, archive: Path) -> None:
    """The state between the run file and its head, and a state with one blob lost."""
    run = write_run(far).run
    as_archive(far, archive)
    import_runs(near.root, archive)
    near.heads_path.write_bytes(b"")
    drop_blob(near.root, run)
    assert verify(near.root)
    assert import_runs(near.root, archive).unchanged == [run]
    assert verify(near.root) == []


def make_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, data in members:
            member.size = len(data) if member.isreg() else member.size
            tar.addfile(member, io.BytesIO(data))
    return path


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


RUN = "runs/20260101T000000000000Z-00000000.jsonl"
HOSTILE = {
    "climbs": (tarfile.TarInfo("../escaped"), b"x"),
    "climbs from inside": (tarfile.TarInfo("runs/../../escaped"), b"x"),
    "absolute": (tarfile.TarInfo("/tmp/kernwright-escaped"), b"x"),
    "climbing run": (tarfile.TarInfo("runs/../escaped.jsonl"), b"x"),
    "another file": (tarfile.TarInfo("heads.jsonl"), b"x"),
    "newline in the name": (tarfile.TarInfo(RUN + "\n"), b"x"),
    "misplaced blob": (tarfile.TarInfo(f"blobs/00/{'1' * 64}"), b"x"),
    "symbolic link": (link(RUN, "/etc/passwd", tarfile.SYMTYPE), b""),
    "hard link": (link(RUN, "heads-excerpt.jsonl", tarfile.LNKTYPE), b""),
    "device": (link(RUN, "", tarfile.CHRTYPE), b""),
    "fifo": (link(RUN, "", tarfile.FIFOTYPE), b""),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_archive_is_refused(
    near: Ledger, archive: Path, hostile: tuple[tarfile.TarInfo, bytes], tmp_path: Path
) -> None:
    make_tar(archive, (tarfile.TarInfo("heads-excerpt.jsonl"), b""), hostile)
    before = contents(tmp_path)
    with pytest.raises(LedgerError, match="no sound ledger archive"):
        import_runs(near.root, archive)
    assert contents(tmp_path) == before
    assert not Path("/tmp/kernwright-escaped").exists()


@pytest.mark.parametrize(
    "limits",
    [ArchiveLimits(member_bytes=100), ArchiveLimits(total_bytes=1000), ArchiveLimits(members=2)],
    ids=["member", "total", "members"],
)
def test_absurd_sizes_are_refused(far: Ledger, near: Ledger, archive: Path, limits: ArchiveLimits) -> None:
    write_run(far)
    as_archive(far, archive)
    with pytest.raises(LedgerError, match="absurd"):
        import_runs(near.root, archive, limits)
    assert not near.root.exists()
    assert import_runs(near.root, archive).added


def test_a_huge_header_is_refused_without_being_read(near: Ledger, archive: Path) -> None:
    """A pax header that claims a gigabyte of names is harmless to store, but must not be read into memory."""
    header = tarfile.TarInfo("PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    with gzip.open(archive, "wb", compresslevel=1) as stream:
        stream.write(header.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(64):
            stream.write(bytes(1 << 20))
    with pytest.raises(LedgerError, match="absurd size"):
        import_runs(near.root, archive)


def test_a_duplicate_member_is_refused(near: Ledger, archive: Path) -> None:
    make_tar(archive, (tarfile.TarInfo(RUN), b"one\n"), (tarfile.TarInfo(RUN), b"two\n"))
    with pytest.raises(LedgerError, match="twice"):
        import_runs(near.root, archive)


@pytest.mark.parametrize("content", [b"", b"not an archive", gzip.compress(b"not a tar" * 100), b"\x1f\x8b\x08"])
def test_what_is_no_archive_is_refused(near: Ledger, archive: Path, content: bytes) -> None:
    archive.write_bytes(content)
    with pytest.raises(LedgerError) as caught:
        import_runs(near.root, archive)
    assert str(archive.name) in caught.value.cause and caught.value.remedy
    assert not near.root.exists()


def test_a_cut_archive_is_refused(far: Ledger, near: Ledger, archive: Path) -> None:
    write_run(far)
    whole = as_archive(far, archive).read_bytes()
    for kept in range(0, len(whole) - 8, 97):
        archive.write_bytes(whole[:kept])
        with pytest.raises(LedgerError):
            import_runs(near.root, archive)
    assert not near.root.exists()


def test_missing_files_and_runs_have_clear_messages(far: Ledger, near: Ledger, archive: Path) -> None:
    with pytest.raises(LedgerError, match="no archive or ledger folder"):
        import_runs(near.root, archive)
    with pytest.raises(LedgerError, match="no ledger at"):
        export_runs(far.root, [], archive)
    write_run(far)
    with pytest.raises(LedgerError, match="no run nonsense"):
        export_runs(far.root, ["nonsense"], archive)
    with pytest.raises(LedgerError, match="no runs to export"):
        export_runs(far.root, [], archive)
    with pytest.raises(LedgerError, match="cannot write the archive"):
        export_runs(far.root, far.runs(), archive.parent / "missing" / "a.tar.gz")
    (archive.parent / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot import into") as caught:
        import_runs(archive.parent / "file" / "ledger", far.root)
    assert "--ledger" in caught.value.remedy
    assert sorted(path.name for path in archive.parent.iterdir()) == ["far", "file"]
