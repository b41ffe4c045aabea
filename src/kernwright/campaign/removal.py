"""Removal of what a program left behind: also folders without permissions, and trees of any depth."""

from __future__ import annotations

import stat
import uuid
from pathlib import Path


def remove(path: Path) -> None:
    """Remove whatever is at a path. Links are not followed.

    Inner folders are moved up first, so that neither the length of a path nor the depth of a recursion is a limit.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    path.chmod(stat.S_IRWXU)
    while entries := list(path.iterdir()):
        for entry in entries:
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
            else:
                _move_up(entry, path)
    path.rmdir()


def _move_up(folder: Path, target: Path) -> None:
    """Move the content of a folder to another one, and remove the folder."""
    folder.chmod(stat.S_IRWXU)
    for entry in list(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            entry.chmod(stat.S_IRWXU)  # a folder without permissions cannot be moved
        entry.rename(target / uuid.uuid4().hex)
    folder.rmdir()
