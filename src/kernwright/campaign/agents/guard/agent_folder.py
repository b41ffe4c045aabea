"""The agent's folder: what the agent must not leave in it, and the files that the tool generates there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kernwright.campaign.agents.guard.file_states import FileState
from kernwright.campaign.removal import remove

# Files with a meaning for git, which would change what a commit holds.
OF_GIT = {".git", ".gitattributes", ".gitmodules"}
MOST_DEEP, LONGEST = 32, 1000  # folders inside each other; characters of a path below the agent's folder
GENERATED = ("prompt.md", "reference.py", "baseline.md", "hints.md", "ITERATIONS.md")


def remove_unsafe(folder: Path, solution: Path) -> list[str]:
    """Remove links, special files and git's files below the agent's folder. Return a sentence for each.

    Files and folders that their owner may not read are opened to the owner.
    """
    found = []
    for where, name in ((folder, "the agent's folder"), (solution, "solution/")):
        if where.is_symlink() or not where.is_dir():
            found.append(f"{name} is no folder any more" + (f": {_problem(where)}" if _problem(where) else ""))
            remove(where)
            where.mkdir(parents=True, exist_ok=True)
        _open_to_owner(where)
    for path, problem in [*_unsafe(folder)]:
        found.append(f"{path.relative_to(folder.parent)} is {problem}")
        remove(path)
    return found


def _unsafe(folder: Path) -> list[tuple[Path, str]]:
    found = []
    for root, folders, files in os.walk(folder):
        inside = Path(root).relative_to(folder)
        is_deep = len(inside.parts) >= MOST_DEEP or len(str(inside)) >= LONGEST
        for name in sorted([*folders, *files]):
            path = Path(root, name)
            problem = f"a folder inside {len(inside.parts)} others" if is_deep and name in folders else _problem(path)
            if problem:
                found.append((path, problem))
                if name in folders:
                    folders.remove(name)
            else:
                _open_to_owner(path)
    return found


def _open_to_owner(path: Path) -> None:
    mode = path.stat().st_mode
    wanted = mode | (stat.S_IRWXU if stat.S_ISDIR(mode) else stat.S_IRUSR | stat.S_IWUSR)
    if wanted != mode:
        path.chmod(stat.S_IMODE(wanted))


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
