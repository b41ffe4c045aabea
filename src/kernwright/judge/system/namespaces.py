"""Namespaces: a separate network and IPC, and a view of the file system that another user can pass."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kernwright.judge.system.linux import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    PR_SET_DUMPABLE,
    mount,
    prctl,
    unshare,
)


def leave_network(stays_the_same_user: bool) -> str:
    """Move to an empty network. Return the kind of namespace.

    An ordinary user gets one through a user namespace, if the machine allows it.
    """
    try:
        unshare(CLONE_NEWNET | CLONE_NEWIPC)
        return "namespace"
    except OSError:
        if not stays_the_same_user:  # the user namespace would map no other user
            raise
        return _leave_with_user_namespace()


def _leave_with_user_namespace() -> str:
    uid, gid = os.getuid(), os.getgid()
    unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC)
    prctl(PR_SET_DUMPABLE, 1)  # the new rights closed /proc/self to this process
    # Map ids to themselves. Processes are counted anew in the namespace, so a limit on them is meaningful.
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    return "user namespace"


def make_passable(covered: Sequence[str], kept: Sequence[str], written: Sequence[str]) -> None:
    """Cover folders that another user cannot enter (such as a home of mode 0700), in a private mount namespace.

    The covers are empty except for `kept` and `written`. Everything else in such a folder becomes invisible.
    """
    unshare(CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    inside = {path: writable for paths, writable in ((kept, False), (written, True)) for path in paths}
    # Parents first, so that a child is mounted inside its parent. All are opened before they are covered.
    places = sorted((path for path in inside if _is_below(path, covered)), key=lambda path: path.count("/"))
    held = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in places]
    for folder in covered:
        mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    for path, place in held:
        source = f"/proc/self/fd/{place}"
        if not os.path.lexists(path):
            _make_place(path, Path(source).is_dir())
        mount(source, path, None, MS_BIND | MS_REC)
        if not inside[path]:
            mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
        os.close(place)
    for folder in covered:
        mount("none", folder, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _make_place(path: str, is_folder: bool) -> None:
    parent = Path(path) if is_folder else Path(path).parent
    parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not is_folder:
        Path(path).touch()
