"""The state of a repository before a campaign: real repositories in every state that git can be in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_campaign import git, make_repository

from kernwright.campaign.start.hygiene import UncleanRepository, check_hygiene


def commit(folder: Path, name: str, text: str = "x\n") -> str:
    (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", f"Add {name}")
    return git(folder, "rev-parse", "HEAD").strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.fixture
def clone(tmp_path: Path, repository: Path) -> Path:
    """A clone, whose branch has the repository's as its upstream."""
    git(tmp_path, "clone", "-q", str(repository), "clone")
    return tmp_path / "clone"


def test_a_clean_repository_gives_its_commit(repository: Path) -> None:
    found = check_hygiene(repository)
    assert found.commit == git(repository, "rev-parse", "HEAD").strip()
    assert (found.repository.root, found.upstream) == (repository, "no upstream")


def test_files_of_kernwright_are_no_changes(repository: Path) -> None:
    (repository / ".kernwright" / "ledger").mkdir(parents=True)
    (repository / ".kernwright" / "ledger" / "heads.jsonl").write_text("")
    assert check_hygiene(repository).upstream == "no upstream"


def test_a_committed_ledger_may_change(repository: Path) -> None:
    ledger = repository / ".kernwright" / "ledger"
    ledger.mkdir(parents=True)
    (ledger / "heads.jsonl").write_text("")
    commit(repository, "second.py")
    (ledger / "heads.jsonl").write_text("a record\n")
    assert check_hygiene(repository).upstream == "no upstream"
    git(repository, "mv", "model.py", ".kernwright/model.py")
    with pytest.raises(UncleanRepository, match=r"model\.py \(staged\)"):
        check_hygiene(repository)


def untracked(folder: Path) -> None:
    (folder / "new name.py").write_text("")


def changed(folder: Path) -> None:
    (folder / "model.py").write_text("print('changed')\n")


def staged(folder: Path) -> None:
    changed(folder)
    git(folder, "add", "-A")


def renamed(folder: Path) -> None:
    git(folder, "mv", "model.py", "renamed.py")


def removed(folder: Path) -> None:
    (folder / "model.py").unlink()


def diverge(folder: Path) -> None:
    """Make two branches that change the same line."""
    git(folder, "switch", "-q", "-c", "other")
    commit(folder, "model.py", "print('other')\n")
    git(folder, "switch", "-q", "-")
    commit(folder, "model.py", "print('own')\n")


def in_conflict(folder: Path, *words: str) -> None:
    diverge(folder)
    with pytest.raises(Exception, match=words[0]):
        git(folder, *words)


def merging(folder: Path) -> None:
    in_conflict(folder, "merge", "other")


def rebasing(folder: Path) -> None:
    in_conflict(folder, "rebase", "other")


def picking(folder: Path) -> None:
    in_conflict(folder, "cherry-pick", "other")


def bisecting(folder: Path) -> None:
    git(folder, "bisect", "start")


def detached(folder: Path) -> None:
    git(folder, "switch", "-q", "--detach")


def with_changed_submodule(folder: Path) -> None:
    inner = make_repository(folder.parent / "inner")
    git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "inner")
    git(folder, "commit", "-q", "-m", "Add a submodule")
    (folder / "inner" / "model.py").write_text("print('changed')\n")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (untracked, r"new name.py \(untracked\)"),
        (changed, r"model.py \(changed\)"),
        (staged, r"model.py \(staged\)"),
        (renamed, r"renamed.py \(staged\)"),
        (removed, r"model.py \(changed\)"),
        (merging, "a merge is in progress"),
        (rebasing, "a rebase is in progress"),
        (picking, "a cherry-pick is in progress"),
        (bisecting, "a bisection is in progress"),
        (detached, "detached"),
        (with_changed_submodule, r"submodule inner \(changed\)"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_an_unclean_state_is_refused_with_a_remedy(repository: Path, make: Callable[[Path], None], said: str) -> None:
    make(repository)
    with pytest.raises(UncleanRepository, match=said) as refused:
        check_hygiene(repository)
    assert refused.value.remedy


def test_a_base_needs_no_branch(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD").strip()
    commit(repository, "second.py")
    detached(repository)
    assert check_hygiene(repository, "HEAD~1").commit == first
    with pytest.raises(UncleanRepository, match="'nowhere'"):
        check_hygiene(repository, "nowhere")


def test_folders_without_a_commit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UncleanRepository, match="no working tree"):
        check_hygiene(tmp_path)
    git(tmp_path, "init", "-q")
    with pytest.raises(UncleanRepository, match="no commit"):
        check_hygiene(tmp_path)


def test_the_upstream_decides(repository: Path, clone: Path) -> None:
    assert check_hygiene(clone).upstream == "in step"
    commit(clone, "own.py")
    assert check_hygiene(clone).upstream == "ahead"
    commit(repository, "theirs.py")
    git(clone, "fetch", "-q")
    with pytest.raises(UncleanRepository, match=r"diverged .* 1 commit\(s\) ahead and 1 behind"):
        check_hygiene(clone)
    git(clone, "reset", "-q", "--hard", "HEAD~1")
    with pytest.raises(UncleanRepository, match=r"1 commit\(s\) behind"):
        check_hygiene(clone)
    assert check_hygiene(clone, "HEAD").upstream == "no upstream", "a named commit is known, whatever the upstream has"


def test_an_upstream_that_is_not_here_is_refused(clone: Path) -> None:
    git(clone, "update-ref", "-d", "refs/remotes/origin/" + git(clone, "branch", "--show-current").strip())
    with pytest.raises(UncleanRepository, match="does not exist here"):
        check_hygiene(clone)


def test_a_missing_commit_of_a_shallow_clone_names_the_remedy(tmp_path: Path, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD").strip()
    commit(repository, "second.py")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    with pytest.raises(UncleanRepository) as refused:
        check_hygiene(tmp_path / "shallow", first)
    assert "--unshallow" in refused.value.remedy


def test_in_a_worktree_its_own_commit_and_files_count(tmp_path: Path, repository: Path) -> None:
    side = tmp_path / "side"
    git(repository, "worktree", "add", "-q", "-b", "side", str(side))
    commit(side, "second.py")
    (repository / "unfinished.py").write_text("")
    base = check_hygiene(side)
    assert base.repository.root == repository
    assert base.commit == git(side, "rev-parse", "HEAD").strip()
    (side / "strange.py").write_text("")
    with pytest.raises(UncleanRepository, match=r"strange\.py"):
        check_hygiene(side)
