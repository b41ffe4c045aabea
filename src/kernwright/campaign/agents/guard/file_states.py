"""States of files: all files below a path, and their changes since an earlier state."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernwright.campaign.removal import remove

MOST_KEPT = 1 << 26  # bytes of one file that are kept in memory to put them back
Skip = Callable[[Path], bool]


@dataclass(frozen=True)
class FileState:
    """One file, folder or link. `data` is its content, or a link's target; None if it is not kept.

    `stamp` changes with every change of content, owner, mode or links: no program without privileges can set the time
    of a change of status.
    """

    kind: int  # stat.S_IFMT of its mode
    mode: int
    stamp: tuple[int, ...]
    data: bytes | None = None

    @classmethod
    def of(cls, path: Path, keep: bool) -> FileState | None:
        """Return the state of a path; None if there is nothing."""
        try:
            found = path.lstat()
            kind = stat.S_IFMT(found.st_mode)
            data: bytes | None = None
            if kind == stat.S_IFLNK:
                data = os.fsencode(path.readlink())
            elif kind == stat.S_IFREG and keep and found.st_size <= MOST_KEPT:
                data = path.read_bytes()
        except OSError:
            return None
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        return cls(kind, stat.S_IMODE(found.st_mode), stamp, data)

    @property
    def size(self) -> int:
        return self.stamp[1]

    def is_same(self, other: FileState) -> bool:
        if (self.kind, self.mode) != (other.kind, other.mode):
            return False
        if self.data is not None and other.data is not None:
            return self.data == other.data
        return self.kind == stat.S_IFDIR or self.stamp == other.stamp


States = Mapping[Path, FileState]


def read_states(root: Path, keep: bool, skip: Skip = lambda path: False) -> dict[Path, FileState]:
    """Return the state of a path and of everything below it. Links are not followed."""
    return {path: state for path in _below(root, skip) if (state := FileState.of(path, keep)) is not None}


def _below(root: Path, skip: Skip) -> Iterator[Path]:
    yield root
    if root.is_symlink() or not root.is_dir():
        return
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = root / entry.name
        if not skip(path):
            if entry.is_dir(follow_symlinks=False):
                yield from _below(path, skip)
            else:
                yield path


@dataclass(frozen=True)
class FileChange:
    """A path whose state changed. None stands for nothing there."""

    path: Path
    before: FileState | None
    after: FileState | None

    def restore(self, fetch: Callable[[Path], bytes | None] = lambda path: None) -> bool:
        """Restore the earlier state. Return whether this was possible.

        Args:
            fetch: returns content that was not kept.
        """
        try:
            if self.before is None:
                remove(self.path)
                return True
            data = self.before.data if self.before.data is not None else fetch(self.path)
            return _put_back(self.path, self.before, data)
        except OSError:
            return False


def _put_back(path: Path, state: FileState, data: bytes | None) -> bool:
    if state.kind not in (stat.S_IFDIR, stat.S_IFLNK, stat.S_IFREG):
        return False
    now = FileState.of(path, keep=False)
    if now is not None and now.kind != state.kind:
        remove(path)
        now = None
    path.parent.mkdir(parents=True, exist_ok=True)
    if state.kind == stat.S_IFDIR:
        path.mkdir(exist_ok=True)
    elif data is None:
        return False
    elif state.kind == stat.S_IFLNK:
        remove(path)
        path.symlink_to(os.fsdecode(data))
        return True
    else:
        if now is not None:
            path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        # In place: a process that has the file open must continue to write to the same file.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.truncate()
    path.chmod(state.mode)
    return True


def has_changed(before: States, root: Path) -> bool:
    """Return whether a tree differs from its earlier states, which have its contents.

    Only files of the earlier size are read: a program may have left any amount of data.
    """
    after = read_states(root, keep=False)
    return before.keys() != after.keys() or any(
        not old.is_same(after[path])
        and (old.size != after[path].size or (now := FileState.of(path, keep=True)) is None or not old.is_same(now))
        for path, old in before.items()
    )


def changes_between(before: States, after: States) -> list[FileChange]:
    """Return the changes, parents first. If a folder is new or missing, its files are not listed."""
    found: list[FileChange] = []
    covered: list[Path] = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old is not None and new is not None and old.is_same(new):
            continue
        if old is None and covered and path.is_relative_to(covered[-1]):
            continue  # it goes with its folder
        if old is None:
            covered.append(path)
        found.append(FileChange(path, old, new))
    return found
