"""The store: wheels from a folder, in some tests by the real pip. Trees are complete or absent."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
from fake_package import Shelf

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.packages import store
from kernwright.packages.archive import cut, pack
from kernwright.packages.download import WheelSource
from kernwright.packages.store import CARRIED, Store, carried_pieces, piece_name
from kernwright.packages.tree import Tree

FILES = {"pkg/__init__.py": "v = 1\n", "pkg/kernel.py": "k = 2\n", "pkg/big.bin": "x" * 1000}


def silent(_: str) -> None: ...


@pytest.fixture
def tree(shelf: Shelf) -> Tree:
    return shelf.tree("pkg", FILES, keep=("pkg/*",), leave=("*.bin",))


@pytest.fixture
def home(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_only_the_files_to_keep_are_unpacked(shelf: Shelf, tree: Tree, home: Store) -> None:
    place = home.fetch(tree, shelf.source, silent)
    assert {path.name for path in place.rglob("*") if path.is_file()} == {"__init__.py", "kernel.py"}
    assert home.need(tree) == place and {path.name for path in home.folder.iterdir()} == {
        place.name,
        f"{place.name}.lock",
    }


@pytest.mark.usefixtures("copied_wheels")
def test_a_present_tree_is_not_fetched_again(
    shelf: Shelf, tree: Tree, home: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = home.fetch(tree, shelf.source, silent)
    monkeypatch.setattr(store, "fetch", lambda *_: pytest.fail("fetched"))
    assert home.fetch(tree, shelf.source, silent) == place


@pytest.mark.usefixtures("copied_wheels")
@pytest.mark.parametrize("damage", ["changed", "missing", "more", "unfinished"])
def test_a_broken_tree_is_refused_and_made_again(shelf: Shelf, tree: Tree, home: Store, damage: str) -> None:
    place = home.fetch(tree, shelf.source, silent)
    match damage:
        case "changed":
            (place / "pkg/kernel.py").write_text("k = 3\n")
        case "missing":
            (place / "pkg/kernel.py").unlink()
        case "more":
            (place / "pkg/other.py").write_text("")
        case "unfinished":
            place.rename(home.folder / f"{tree.digest}.partial")
    assert home.find(tree) is None
    with pytest.raises(EnvironmentProblem, match="kernwright baseline fetch"):
        home.need(tree)
    assert home.fetch(tree, shelf.source, silent) == place and home.find(tree)


@pytest.mark.usefixtures("copied_wheels")
def test_files_that_differ_from_the_lock_are_refused(shelf: Shelf, tree: Tree, home: Store) -> None:
    wrong = tree.model_copy(update={"digest": "f" * 64})
    with pytest.raises(KernwrightError, match=f"unpacks to {tree.digest}"):
        home.fetch(wrong, shelf.source, silent)
    assert home.find(wrong) is None


def test_another_wheel_of_the_same_name_is_refused(shelf: Shelf, tree: Tree, home: Store) -> None:
    shelf.write_wheel(shelf.folder, "pkg", version="1.0", files=FILES | {"pkg/kernel.py": "k = 'other'\n"})
    with pytest.raises(KernwrightError, match="SHA-256"):
        home.fetch(tree, shelf.source, silent)
    assert home.find(tree) is None


def test_a_missing_wheel_is_reported(tree: Tree, home: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(KernwrightError, match="has no wheel of pkg"):
        home.fetch(tree, WheelSource(folder=tmp_path / "empty"), silent)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written_names_the_variable(tree: Tree, shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(EnvironmentProblem, match=store.VARIABLE):
        Store(tmp_path / "closed" / "store").fetch(tree, shelf.source, silent)


def _fetch(folder: Path, tree: Tree, shelf_folder: Path) -> None:
    Store(folder).fetch(tree, WheelSource(folder=shelf_folder), silent)


def test_two_may_fetch_at_once(shelf: Shelf, tree: Tree, home: Store) -> None:
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_fetch, args=(home.folder, tree, shelf.folder)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0] and home.find(tree)


# Out of a bundle


def carry(tree: Tree, place: Path, parts: list[Path], most: int) -> list[Path]:
    """Cut the tree's archive into pieces and distribute them over the parts."""
    archive = parts[0].parent / "archive"
    pack(place, archive)
    for part in parts:
        (part / CARRIED).mkdir(parents=True)
    cut_here = parts[0].parent / "cut"
    cut_here.mkdir()
    pieces = cut(archive, most, lambda number, count: piece_name(tree, number, count), cut_here)
    return [p.rename(parts[i % len(parts)] / CARRIED / p.name) for i, p in enumerate(pieces)]


@pytest.mark.usefixtures("copied_wheels")
def test_a_bundle_s_pieces_serve_without_a_network(
    shelf: Shelf, tree: Tree, home: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [tmp_path / "part-1", tmp_path / "part-2"]
    pieces = carry(tree, home.fetch(tree, shelf.source, silent), parts, most=50)
    assert len(pieces) > 2 and all(piece.stat().st_size <= 50 for piece in pieces)
    monkeypatch.setattr(store, "fetch", lambda *_: pytest.fail("asked the network"))
    elsewhere = Store(tmp_path / "elsewhere")
    assert carried_pieces(tree) == []
    monkeypatch.syspath_prepend(str(parts[0]))
    with pytest.raises(EnvironmentProblem, match="lacks"):
        elsewhere.need(tree)
    monkeypatch.syspath_prepend(str(parts[1]))
    assert elsewhere.need(tree) == elsewhere.place(tree) and elsewhere.find(tree)


@pytest.mark.usefixtures("copied_wheels")
@pytest.mark.parametrize("damage", ["cut", "garbled", "another"])
def test_pieces_that_were_damaged_are_refused(
    shelf: Shelf, tree: Tree, home: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    place = home.fetch(tree, shelf.source, silent)
    (piece,) = carry(tree, place, [tmp_path / "part-1"], most=1 << 20)
    data = piece.read_bytes()
    if damage == "another":
        (place / "pkg/kernel.py").write_text("k = 4\n")
        pack(place, piece)
    else:
        piece.write_bytes(data[: len(data) // 2] if damage == "cut" else data[::-1])
    monkeypatch.syspath_prepend(str(tmp_path / "part-1"))
    with pytest.raises(KernwrightError):
        Store(tmp_path / "elsewhere").need(tree)
    assert not (tmp_path / "elsewhere" / tree.digest).exists()
