"""Git as campaigns use it: locks of a killed process, and files that a commit leaves out."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from tiny_campaign import git, make_repository

from kernwright.campaign import repository as module
from kernwright.campaign.repository import Repository

FOLDER = PurePosixPath("own")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(make_repository(tmp_path / "project"))


def test_locks_of_a_killed_process_do_not_end_a_campaign(repository: Repository, tmp_path: Path) -> None:
    index, folder = tmp_path / "index", repository.root / ".git"
    locks = [tmp_path / "index.lock", folder / "refs" / "heads" / "main.lock", folder / "HEAD.lock"]
    for lock in locks:
        lock.write_text("")
    (repository.root / "own").mkdir()
    (repository.root / "own" / "kernel.py").write_text("1")
    files = repository.files_in(repository.root / "own")
    made = repository.commit(FOLDER, files, "Add a kernel", "main", index)
    assert repository.head == made and repository.files_at(made, FOLDER) == files
    (folder / "index.lock").write_text("")
    repository.refresh_index()
    assert git(repository.root, "status", "--porcelain") == ""
    made = repository.commit(FOLDER, {"kernel.py/part": files["kernel.py"]}, "Replace a file", "main", index)
    assert repository.files_at(made, FOLDER) == {"kernel.py/part": files["kernel.py"]}
    assert not any(lock.exists() for lock in locks) and not index.exists()


def test_a_file_with_two_names_is_not_written_through(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("of another program")
    (tmp_path / "new.py").write_text("new")
    (files,) = [repository.files_in(tmp_path, PurePosixPath("new.py"))["new.py"]]
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "kernel.py").hardlink_to(tmp_path / "theirs.py")
    repository.write({"kernel.py": files}, tmp_path / "solution")
    assert (tmp_path / "solution" / "kernel.py").read_text() == "new"
    assert (tmp_path / "theirs.py").read_text() == "of another program"


def test_notes_beside_the_candidate_are_kept_up_to_a_limit(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BESIDE", 100)
    for name in ("context/a", "context/b", "solution/kernel.py"):
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / name).write_text("x" * 60)
    assert [*repository.files_in(tmp_path / "own", PurePosixPath("solution"))] == ["context/a", "solution/kernel.py"]
    monkeypatch.setattr(module, "MOST_FILES_BESIDE", 0)
    assert [*repository.files_in(tmp_path / "own", PurePosixPath("solution"))] == ["solution/kernel.py"]
