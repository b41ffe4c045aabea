"""Files that must not change during a judgement."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.judge.record.file_snapshot import PACKAGE, FileSnapshot


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "definitions.py").write_text("x = 1")
    (tmp_path / "task.toml").write_text("")
    (tmp_path / "notes.txt").write_text("anything")
    return tmp_path


def test_untouched_files_are_whole(folder: Path) -> None:
    snapshot = FileSnapshot.over(folder)
    assert set(snapshot.digests) == {folder / "inner" / "definitions.py", folder / "task.toml"}
    (folder / "notes.txt").write_text("no source")
    assert snapshot.changed() == []


def test_an_edit_and_a_removal_are_found(folder: Path) -> None:
    snapshot = FileSnapshot.over(folder)
    (folder / "inner" / "definitions.py").write_text("x = 2")
    (folder / "task.toml").unlink()
    assert snapshot.changed() == [folder / "inner" / "definitions.py", folder / "task.toml"]


def test_a_file_is_sealed_whatever_it_is(folder: Path) -> None:
    """For example, the library with which workers run blocks."""
    snapshot = FileSnapshot.over(folder, folder / "notes.txt")
    (folder / "notes.txt").write_text("something else")
    assert snapshot.changed() == [folder / "notes.txt"]


def test_the_judges_own_sources_are_among_what_is_sealed() -> None:
    assert PACKAGE / "judge" / "worker" / "worker.py" in FileSnapshot.over(PACKAGE).digests
