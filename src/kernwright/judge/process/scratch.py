"""Scratch folders of a judgement's workers: gone with it, and swept by the next one if it was killed."""

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
    root = Path(tempfile.gettempdir())
    _sweep(root)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
    except OSError as error:
        raise EnvironmentProblem(f"no scratch folder below {root}: {error}", "free some space, or set TMPDIR") from None
    if os.geteuid() == 0:
        folder.chmod(0o711)  # workers are other users then: they may pass, each to the folder that is its own
    try:
        yield folder
    finally:
        remove_tree(folder)


def _sweep(root: Path) -> None:
    """Removes the folders of judges that died without doing so themselves."""
    for left in root.glob(f"{PREFIX}*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _end_workers(left)
            remove_tree(left)


def remove_tree(folder: Path) -> None:
    """Whatever a worker made of it. Folders nested by the thousand are deeper than Python walks, and a judge that falls
    over them would leave them to every judge after it."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        with contextlib.suppress(OSError):
            _flatten(folder)
        with contextlib.suppress(RecursionError):
            shutil.rmtree(folder, ignore_errors=True)


def _flatten(folder: Path) -> None:
    """Moves every folder below this one right into it, and opens it to us. To be called when nobody works there."""
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
    """A worker dies with its judge, but not what it had started: that runs as the owner of its scratch folder."""
    if os.geteuid() == 0:
        for scratch in folder.glob("*/scratch"):
            if is_worker_user(owner := scratch.lstat().st_uid):
                end_processes_of(owner)
