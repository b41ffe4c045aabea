"""Scratch folders of workers. A judgement removes its folder; the next one removes folders of killed judges."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.system.users import end_processes_of, is_worker_user

PREFIX = "kernwright-scratch-"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Provide a scratch folder and remove it at the end."""
    root = Path(tempfile.gettempdir())
    _sweep(root)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
    except OSError as error:
        raise EnvironmentProblem(f"no scratch folder below {root}: {error}", "free some space, or set TMPDIR") from None
    if os.geteuid() == 0:
        folder.chmod(0o711)  # workers run as other users and pass through it to their folders
    try:
        yield folder
    finally:
        remove_tree(folder)


def _sweep(root: Path) -> None:
    """Remove the folders of judges that were killed."""
    for left in root.glob(f"{PREFIX}*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _end_workers(left)
            remove_tree(left)


def remove_tree(folder: Path) -> None:
    """Remove a folder, whatever a worker put there.

    Folders nested by the thousand exceed Python's recursion limit, and would stay for every later judge. They are
    flattened first.
    """
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        with contextlib.suppress(OSError):
            _flatten(folder)
        with contextlib.suppress(RecursionError):
            shutil.rmtree(folder, ignore_errors=True)


def _flatten(folder: Path) -> None:
    """Move every folder below this one directly into it, with access for us. No process may use the folder."""
    numbers = itertools.count()
    waiting = [str(folder)]
    while waiting:
        place = waiting.pop()
        for entry in list(os.scandir(place)):
            if entry.is_dir(follow_symlinks=False):
                moved = f"{folder}/{next(numbers)}~"
                Path(entry.path).chmod(0o700)
                os.rename(entry.path, moved)  # noqa: PTH104 - a path this short never grows
                waiting.append(moved)


def _end_workers(folder: Path) -> None:
    """End processes that a worker started: they outlive it and run as the owner of its scratch folder."""
    if os.geteuid() == 0:
        for scratch in folder.glob("*/scratch"):
            if is_worker_user(owner := scratch.lstat().st_uid):
                end_processes_of(owner)
