"""Content-addressed files: stored once, whole or not at all, and checked whenever they are read."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from kernwright.core.errors import LedgerError
from kernwright.ledger.blobs import BlobStore, blob_reference, blob_references
from kernwright.ledger.files import make_folder, replacing


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.mark.parametrize("data", [b"", b"samples", bytes(range(256)) * 20_000])
def test_what_is_written_is_read(store: BlobStore, data: bytes) -> None:
    digest = store.write(data)
    assert digest == hashlib.sha256(data).hexdigest()
    assert store.path(digest) == store.folder / digest[:2] / digest
    assert store.read(digest) == data
    assert store.state(digest) == "intact"


def test_writing_twice_leaves_the_first_file_alone(store: BlobStore) -> None:
    path = store.path(store.write(b"samples"))
    before = path.stat()
    store.write(b"samples")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_an_altered_blob_is_refused_and_mended_by_its_own_content(store: BlobStore) -> None:
    digest = store.write(b"samples")
    store.path(digest).write_bytes(b"sampler")
    assert store.state(digest) == "altered"
    with pytest.raises(LedgerError, match="altered"):
        store.read(digest)
    assert store.write(b"samples") == digest
    assert store.read(digest) == b"samples"


def test_a_missing_blob_is_named(store: BlobStore) -> None:
    digest = "0" * 64
    assert store.state(digest) == "missing"
    with pytest.raises(LedgerError, match=digest):
        store.read(digest)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_only_digests_are_names(store: BlobStore, name: str) -> None:
    with pytest.raises(LedgerError, match="no blob name"):
        store.read(name)


def test_a_folder_that_cannot_be_made_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LedgerError, match="cannot store the blob") as caught:
        BlobStore(tmp_path / "file" / "blobs").write(b"samples")
    assert "--ledger" in caught.value.remedy


def test_references_are_found_at_any_depth_and_only_whole_strings() -> None:
    one, two = "1" * 64, "2" * 64
    body = {
        "rows": [{"samples": blob_reference(one)}, [blob_reference(two)]],
        "text": f"see {blob_reference('3' * 64)}",
        blob_reference("4" * 64): "a key is no reference",
        "upper": blob_reference("A" * 64),
    }
    assert list(blob_references(body)) == [one, two]


def test_a_failed_replacement_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    target = tmp_path / "archive"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError), replacing(target) as stream:
        stream.write(b"new")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_folders_are_made_with_their_parents_and_may_exist(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b" / "c")
    make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


SAMPLES = b"[1204.5, 1203.0], " * 4096


def test_large_blobs_lie_compressed_and_small_ones_as_they_are(store: BlobStore) -> None:
    small, large = store.write(b"few"), store.write(SAMPLES)
    assert store.path(small).read_bytes() == b"few"
    (packed,) = store.folder.rglob("*.gz")
    assert packed.name == f"{large}.gz" and packed.stat().st_size < len(SAMPLES) / 5
    assert store.read(large) == SAMPLES and store.state(large) == "intact"
    before = packed.stat().st_mtime_ns
    assert store.write(SAMPLES) == large and packed.stat().st_mtime_ns == before, "stored already"


def test_a_large_blob_from_before_they_were_compressed_is_read_as_it_is(store: BlobStore) -> None:
    digest = hashlib.sha256(SAMPLES).hexdigest()
    store.path(digest).parent.mkdir(parents=True)
    store.path(digest).write_bytes(SAMPLES)
    assert store.read(digest) == SAMPLES
    store.write(SAMPLES)
    assert not list(store.folder.rglob("*.gz")), "it is there already"
    store.path(digest).write_bytes(b"other samples")
    assert store.state(digest) == "altered"
    store.write(SAMPLES)
    assert store.read(digest) == SAMPLES, "repaired"


@pytest.mark.parametrize("damage", [b"", b"no gzip", gzip.compress(SAMPLES)[:-9], gzip.compress(b"other samples")])
def test_a_damaged_compressed_blob_is_found_and_repaired(store: BlobStore, damage: bytes) -> None:
    digest = store.write(SAMPLES)
    (packed,) = store.folder.rglob("*.gz")
    packed.write_bytes(damage)
    assert store.state(digest) == "altered"
    with pytest.raises(LedgerError, match=f"{digest}.gz was altered"):
        store.read(digest)
    store.write(SAMPLES)
    assert store.read(digest) == SAMPLES


def test_a_decompression_bomb_is_refused(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernwright.ledger.blobs._MOST", 2 << 20)
    bomb = gzip.compress(bytes(64 << 20))
    digest = hashlib.sha256(bytes(64 << 20)).hexdigest()
    store.path(digest).parent.mkdir(parents=True)
    store.path(digest).with_name(f"{digest}.gz").write_bytes(bomb)
    assert store.state(digest) == "altered"
