"""The agent's folder: what the agent must not leave in it, and the files that the tool generates there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kernwright.campaign.agents.guard.file_states import FileState, remove

# Files with a meaning for git, which would change what a commit holds.
OF_GIT = {".git", ".gitattributes", ".gitmodules"}
GENERATED = ("prompt.md", "reference.py", "baseline.md", "hints.md", "ITERATIONS.md")


def remove_unsafe(folder: Path, solution: Path) -> list[str]:
    """Remove links, special files and git's files below the agent's folder. Return a sentence for each."""
    found = []
    for where, name in ((folder, "the agent's folder"), (solution, "solution/")):
        if where.is_symlink() or not where.is_dir():
            found.append(f"{name} is no folder any more" + (f": a link to {where.readlink()}" * where.is_symlink()))
            if where.is_symlink() or where.exists():
                remove(where)
            where.mkdir(parents=True, exist_ok=True)
    for path, problem in [*_unsafe(folder)]:
        found.append(f"{path.relative_to(folder.parent)} is {problem}")
        remove(path)
    return found


def _unsafe(folder: Path) -> list[tuple[Path, str]]:
    found = []
    for root, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            path = Path(root, name)
            if problem := _problem(path):
                found.append((path, problem))
                if name in folders:
                    folders.remove(name)
    return found


def _problem(path: Path) -> str | None:
    if path.name in OF_GIT:
        return "a file of git"
    try:
        found = path.lstat()
    except OSError:
        return None
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFLNK:
        return f"a link to {path.readlink()}"
    if kind not in (stat.S_IFDIR, stat.S_IFREG):
        return "a special file"
    if kind == stat.S_IFREG and found.st_nlink > 1:
        return "a hard link to another file"
    if found.st_mode & (stat.S_ISUID | stat.S_ISGID) and kind == stat.S_IFREG:
        return "a program with the rights of another user"
    return None


class GeneratedFiles:
    """The files of the agent's folder that the tool generates. An agent's changes of them are undone silently."""

    def __init__(self, folder: Path) -> None:
        self._before = {folder / name: FileState.of(folder / name, keep=True) for name in GENERATED}

    def put_back(self) -> list[str]:
        """Restore the files. Return the names of those that had changed."""
        found = []
        for path, before in self._before.items():
            after = FileState.of(path, keep=True)
            if before is not None and before.data is not None and (after is None or not after.is_same(before)):
                remove(path)
                path.write_bytes(before.data)
                path.chmod(before.mode)
                found.append(path.name)
        return found
