"""Archives read and verify like the ledger folder from which they were packed."""

from __future__ import annotations

import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import LedgerError
from kernwright.ledger.archive import heads_beside, read_left_out, write_archive
from kernwright.ledger.blobs import blob_reference
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.transfer import export_runs, import_runs, pack_runs
from kernwright.ledger.verify import Damage, verify


def write_run(ledger: Ledger, name: str) -> str:
    with ledger.open_run({"task": name}) as writer:
        for number in range(3):
            samples = writer.blob(f"samples {name} {number}".encode() * 500)
            writer.append("verdict", {"task": name, "number": number, "samples": blob_reference(samples)})
    return writer.run


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    own = Ledger(tmp_path / "ledger")
    for name in ("first", "second", "third"):
        write_run(own, name)
    return own


def transferred(ledger: Ledger, folder: Path) -> Path:
    export_runs(ledger.root, ledger.runs(), folder / "all.tar.gz")
    return folder / "all.tar.gz"


def packed(ledger: Ledger, folder: Path) -> Path:
    pack_runs(ledger.root, ledger.runs(), folder / "all.tar.xz")
    return folder / "all.tar.xz"


def packed_in_parts(ledger: Ledger, folder: Path) -> Path:
    first, *others = ledger.runs()
    pack_runs(ledger.root, [first], folder / "parts" / "one.tar.xz")
    pack_runs(ledger.root, others, folder / "parts" / "two.tar.xz")
    return folder / "parts"


@pytest.mark.parametrize("form", [transferred, packed, packed_in_parts])
def test_an_archive_reads_like_its_ledger(ledger: Ledger, tmp_path: Path, form: Callable[[Ledger, Path], Path]) -> None:
    place = form(ledger, tmp_path)
    archive = Ledger(place)
    assert archive.runs() == ledger.runs()
    assert list(archive.all_records()) == list(ledger.all_records())
    for record in archive.all_records():
        if record.kind == "verdict":
            digest = record.body["samples"].removeprefix("blob:")
            assert archive.blobs.read(digest) == ledger.blobs.read(digest)
    assert verify(place) == []
    copy = Ledger(tmp_path / "copy")
    assert import_runs(copy.root, place).added == ledger.runs()
    assert list(copy.all_records()) == list(ledger.all_records()) and verify(copy.root) == []


@pytest.mark.parametrize("form", [packed, packed_in_parts])
def test_an_archive_is_read_only(ledger: Ledger, tmp_path: Path, form: Callable[[Ledger, Path], Path]) -> None:
    place = form(ledger, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for attempt in (lambda: Ledger(place).open_run({}), lambda: import_runs(place, ledger.root)):
        with pytest.raises(LedgerError, match="read-only"):
            attempt()
    assert sorted(tmp_path.rglob("*")) == before


def test_the_same_runs_make_the_same_bytes(ledger: Ledger, tmp_path: Path) -> None:
    one, two = tmp_path / "one.tar.xz", tmp_path / "two.tar.xz"
    pack_runs(ledger.root, ledger.runs(), one)
    pack_runs(one, list(reversed(ledger.runs())), two)
    assert one.read_bytes() == two.read_bytes()
    assert heads_beside(one).read_bytes() == heads_beside(two).read_bytes()


def test_runs_that_were_left_out_are_listed_with_the_reason(ledger: Ledger, tmp_path: Path) -> None:
    archive = tmp_path / "some.tar.xz"
    first, second, third = ledger.runs()
    pack_runs(ledger.root, [first, third], archive, {second: "superseded"})
    assert Ledger(archive).runs() == [first, third] and verify(archive) == []
    with tarfile.open(archive) as tar:
        listed = tar.extractfile("left-out.jsonl")
        assert listed is not None
        entry = json.loads(listed.read())
    assert entry == {"run": second, "reason": "superseded", "records": 4, "last": ledger.records(second)[-1].hash}


def test_an_archive_packed_again_keeps_listing_runs_that_its_ledger_no_longer_has(
    ledger: Ledger, tmp_path: Path
) -> None:
    archive = tmp_path / "some.tar.xz"
    first, second, third = ledger.runs()
    pack_runs(ledger.root, [first, third], archive, {second: "superseded"})
    import_runs(tmp_path / "later", archive)
    pack_runs(tmp_path / "later", [third], archive, {first: "stale"})
    reasons = {entry["run"]: entry["reason"] for entry in read_left_out(archive)}
    assert reasons == {first: "stale", second: "superseded"}
    pack_runs(ledger.root, [first, second], archive)
    assert [entry["run"] for entry in read_left_out(archive)] == [], "both are packed again"


def repacked(archive: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    """Write the archive again with members that ``change`` altered, or left out with None."""
    with tarfile.open(archive) as tar:
        members = [(m.name, tar.extractfile(m).read()) for m in tar.getmembers()]  # type: ignore[union-attr]
    kept = [(name, new) for name, data in members if (new := change(name, data)) is not None]
    with archive.open("wb") as stream:
        write_archive(stream, kept, "xz")


def test_damage_inside_or_beside_an_archive_is_found(ledger: Ledger, tmp_path: Path) -> None:
    damages = {
        Damage.EDITED: lambda name, data: data.replace(b'"number":1', b'"number":7') if "runs/" in name else data,
        Damage.BLOB_ALTERED: lambda name, data: data[:-1] + b"!" if "blobs/" in name else data,
        Damage.BLOB_MISSING: lambda name, data: None if "blobs/" in name else data,
        Damage.MISSING_RUN: lambda name, data: None if ledger.runs()[1] in name else data,
        Damage.TRUNCATED: lambda name, data: data[: data.rindex(b"{")] if "runs/" in name else data,
    }
    for number, (kind, change) in enumerate(damages.items()):
        archive = tmp_path / f"{number}.tar.xz"
        pack_runs(ledger.root, ledger.runs(), archive)
        repacked(archive, change)  # type: ignore[arg-type]
        assert kind in {problem.kind for problem in verify(archive)}
    archive = packed(ledger, tmp_path)
    heads_beside(archive).unlink()
    assert {problem.kind for problem in verify(archive)} == {Damage.HEADS_TRUNCATED}


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"text", lzma.compress(b"no tar"), b"\xfd7zXZ\x00 cut off")):
        path = tmp_path / f"{number}.tar.xz"
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="no sound ledger archive"):
            verify(path)


def test_an_archive_that_needs_too_much_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.tar.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}]
    path.write_bytes(lzma.compress(bytes(10240), filters=filters))
    with pytest.raises(LedgerError, match="emory"):
        verify(path)


def test_runs_of_different_ledgers_are_not_packed_together(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other")
    write_run(other, "fourth")
    for name, own in (("one", ledger), ("two", other)):
        pack_runs(own.root, own.runs(), tmp_path / "parts" / f"{name}.tar.xz")
    both = Ledger(tmp_path / "parts")
    assert verify(both.root) == [] and len(both.runs()) == 4
    with pytest.raises(LedgerError, match="different heads"):
        pack_runs(both.root, both.runs(), tmp_path / "all.tar.xz")


def test_the_commands_read_an_archive(ledger: Ledger, tmp_path: Path) -> None:
    archive = tmp_path / "all.tar.xz"
    done = CliRunner().invoke(app, ["ledger", "pack", str(archive), "--ledger", str(ledger.root)])
    assert done.exit_code == 0 and "3 run(s)" in done.output
    for words in (["verify"], ["show"], ["show", ledger.runs()[0]], ["recompute"]):
        done = CliRunner().invoke(app, ["ledger", *words, "--ledger", str(archive)])
        assert done.exit_code == 0, done.output
    assert "9 verdict(s) not derivable" in done.output
