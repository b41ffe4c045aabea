"""Hygiene: the state that a repository must have before a campaign starts in it.

A campaign's results refer to its base commit. So the files must be exactly those of a commit that others can get: the
tree is clean and, if the branch has an upstream, it is neither behind it nor diverged from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernwright.campaign.repository import GitFailed, Repository
from kernwright.core.errors import KernwrightError

OWN = ".kernwright/"
MOST_SHOWN = 5
UNFINISHED = {
    "MERGE_HEAD": ("a merge", "`git merge --abort`, or finish it with `git commit`"),
    "rebase-merge": ("a rebase", "`git rebase --continue` or `git rebase --abort`"),
    "rebase-apply": ("a rebase or `git am`", "`git rebase --continue` or `git rebase --abort`"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "`git cherry-pick --continue` or `--abort`"),
    "REVERT_HEAD": ("a revert", "`git revert --continue` or `--abort`"),
    "BISECT_LOG": ("a bisection", "`git bisect reset`"),
}

UpstreamState = Literal["no upstream", "in step", "ahead"]


class UncleanRepository(KernwrightError):
    """The repository is not in a state that a campaign can start from."""


@dataclass(frozen=True)
class CleanBase:
    """A repository that passed the checks, and the commit that the campaign starts from.

    Attributes:
        repository: with the main working tree, if the folder is in another worktree of it.
        upstream: the state of the current branch against its upstream; "ahead" has commits that were not pushed.
    """

    repository: Repository
    commit: str
    upstream: UpstreamState


def check_hygiene(folder: Path, base: str | None = None) -> CleanBase:
    """Return the repository around a folder with the commit to start from, if a campaign can start there.

    The working tree that has the folder is checked, and by default its commit is the base.

    Args:
        base: a commit, branch or tag to start from; by default the current commit.

    Raises:
        UncleanRepository: with the reason and the remedy.
    """
    try:
        repository = Repository.around(folder)
    except KernwrightError as error:
        raise UncleanRepository(error.cause, error.remedy) from None
    _refuse_unfinished(repository)
    head = repository.commit_of("HEAD")
    if head is None:
        raise UncleanRepository(
            f"{repository.root} has no commit", "commit your files: a campaign starts from a commit"
        )
    _refuse_changes(repository)
    if base is not None:
        return CleanBase(repository.main, _commit_named(repository, base), "no upstream")
    branch = _branch(repository)
    if branch is None:
        raise UncleanRepository(
            f"HEAD is detached at {head[:12]}: whether it is behind a branch is unknown",
            f"switch to a branch, or name the commit: --base {head[:12]}",
        )
    return CleanBase(repository.main, head, _against_upstream(repository, branch))


def _refuse_unfinished(repository: Repository) -> None:
    git_folder = Path(repository.git("rev-parse", "--path-format=absolute", "--git-dir").strip())
    for name, (what, remedy) in UNFINISHED.items():
        if (git_folder / name).exists():
            raise UncleanRepository(f"{what} is in progress in {repository.root}", remedy)


def _refuse_changes(repository: Repository) -> None:
    changes = list(_changes(repository))
    if not changes:
        return
    shown = ", ".join(changes[:MOST_SHOWN]) + (f" and {len(changes) - MOST_SHOWN} more" if changes[MOST_SHOWN:] else "")
    if all(change.startswith("submodule ") for change in changes):
        remedy = "`git submodule update --init --recursive`, or commit the changes in it and its new commit here"
    else:
        remedy = (
            "commit them, add files that do not belong to the project to .gitignore, or start in a clean worktree "
            "(`git worktree add`)"
        )
    raise UncleanRepository(f"{repository.root} has changes that are in no commit: {shown}", remedy)


def _changes(repository: Repository) -> Iterator[str]:
    """Yield files that differ from the commit, with what is wrong with each.

    Files in the folder of Kernwright do not count, even if they are in the commit: each judgement adds to the ledger.
    """
    listed = repository.git(
        "status", "--porcelain=v2", "--untracked-files=normal", "--ignore-submodules=none", "-z"
    ).split("\0")
    skip = False
    for line in filter(None, listed):
        if skip:
            skip = False
            continue
        kind, *parts = line.split(" ")
        if kind == "?":
            path = line[2:]
            if not path.startswith(OWN):
                yield f"{path} (untracked)"
        elif kind in "12u":
            path = line.split(" ", {"1": 8, "2": 9, "u": 10}[kind])[-1]
            skip = kind == "2"  # the old name follows
            if path.startswith(OWN) and kind == "1":
                continue
            submodule = parts[1].startswith("S")
            state = "unmerged" if kind == "u" else "staged" if parts[0][1] == "." else "changed"
            yield f"submodule {path} ({state})" if submodule else f"{path} ({state})"


def _commit_named(repository: Repository, base: str) -> str:
    commit = repository.commit_of(base)
    if commit is not None:
        return commit
    if _is_shallow(repository):
        raise UncleanRepository(
            f"--base {base!r} is no commit of this clone, which is shallow", "`git fetch --unshallow`, then try again"
        )
    raise UncleanRepository(f"--base {base!r} is no commit of {repository.root}", "`git log --oneline` lists commits")


def _branch(repository: Repository) -> str | None:
    try:
        return repository.git("symbolic-ref", "--quiet", "--short", "HEAD").strip()
    except GitFailed:
        return None


def _against_upstream(repository: Repository, branch: str) -> UpstreamState:
    """Return the state compared with the upstream as of the last `git fetch`. Nothing is downloaded."""
    merge, remote = (repository.configured(f"branch.{branch}.{key}") for key in ("merge", "remote"))
    if merge is None or remote is None:
        return "no upstream"
    name = repository.git("for-each-ref", "--format=%(upstream:short)", f"refs/heads/{branch}").strip()
    known = repository.commit_of("@{upstream}") is not None
    if not known:
        wanted = name or f"{remote}/{merge.removeprefix('refs/heads/')}"
        raise UncleanRepository(
            f"the upstream {wanted} of branch {branch} does not exist here",
            f"`git fetch {remote}`, or `git branch --unset-upstream` if it is gone for good",
        )
    counts = re.split(r"\s+", repository.git("rev-list", "--left-right", "--count", "HEAD...@{upstream}").strip())
    ahead, behind = map(int, counts)
    if not behind:
        return "ahead" if ahead else "in step"
    if ahead and _is_shallow(repository):
        raise UncleanRepository(
            f"branch {branch} and {name} have no common commit in this clone, which is shallow",
            "`git fetch --unshallow`, then try again",
        )
    if ahead:
        raise UncleanRepository(
            f"branch {branch} has diverged from {name}: {ahead} commit(s) ahead and {behind} behind",
            f"`git rebase {name}` or `git merge {name}`; or name the commit to start from with --base",
        )
    raise UncleanRepository(
        f"branch {branch} is {behind} commit(s) behind {name}",
        "`git pull --ff-only`; or name the commit to start from with --base",
    )


def _is_shallow(repository: Repository) -> bool:
    return repository.git("rev-parse", "--is-shallow-repository").strip() == "true"
