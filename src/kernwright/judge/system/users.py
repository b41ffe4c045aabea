"""Users: a judge that runs as root gives each worker a separate user id."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import re
import signal
import stat
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from kernwright.judge.system import procfs
from kernwright.judge.system.linux import held_capabilities

# Above every range that distributions and systemd assign. Each judge has 64 ids by its process number, so
# two judges on one machine never share an id.
FIRST_USER, USERS_PER_JUDGE = 0x70000000, 64
# In a container that maps 65,536 ids: between ordinary users and systemd's dynamic ones.
FIRST_SMALL, SMALL_USERS = 57_344, 3_840
# Needed to change the user, give it a folder, remove its files and end it. A container's root has all of these.
NEEDED = ("SETUID", "SETGID", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL")
END_DEADLINE_S = 20.0

_slots = itertools.count()
_STATE, _OWNERS = re.compile(rb"^State:\t(\S)", re.MULTILINE), re.compile(rb"^Uid:\t(.*)$", re.MULTILINE)


def why_no_other_user() -> str | None:
    """Return why workers must run as the judge's user; None if they need not."""
    if os.geteuid() != 0:
        return "the judge is not root"
    if lacking := [name for name in NEEDED if name not in held_capabilities()]:
        return f"root lacks CAP_{', CAP_'.join(lacking)} here"
    with contextlib.suppress(OSError):
        if Path("/proc/self/setgroups").read_text().strip() == "deny":
            return "this user namespace lets nobody change groups"
    return None


def user_for(folder: Path) -> int:
    """Return the owner of the folder if it is one of this judge's worker users, else an unused id."""
    owner = folder.stat().st_uid
    if owner in _users():
        return owner
    users = _users()
    for _ in users:
        user = users[next(_slots) % len(users)]
        if not _is_known(user) and not processes_of(user):
            return user
    raise RuntimeError("no user is free for a worker")


def _users() -> range:
    if _is_mapped(FIRST_USER + os.getpid() * USERS_PER_JUDGE):
        first = FIRST_USER + os.getpid() * USERS_PER_JUDGE
    else:
        first = FIRST_SMALL + os.getpid() * USERS_PER_JUDGE % SMALL_USERS
    return range(first, first + USERS_PER_JUDGE)


def is_worker_user(user: int) -> bool:
    return user >= FIRST_USER


def _is_mapped(user: int) -> bool:
    """Return whether this id is mapped in our user namespace."""
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(inside <= user < inside + count for inside, _, count in ranges)


def _is_known(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def barred_folders(paths: Iterable[Path]) -> set[Path]:
    """Return the folders above these paths that other users may not enter."""
    folders = {folder for path in paths for way in (path.absolute(), path.resolve()) for folder in way.parents}
    return {folder.resolve() for folder in folders if not folder.stat().st_mode & stat.S_IXOTH}


def outermost(folders: Iterable[Path]) -> list[str]:
    found = set(folders)
    return sorted(str(folder) for folder in found if found.isdisjoint(folder.parents))


def unreadable(paths: Iterable[Path]) -> Path | None:
    """Return the first path that other users could not read even if all folders above it were open."""
    for path in paths:
        mode = path.stat().st_mode
        wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
        if mode & wanted != wanted:
            return path
    return None


def processes_of(user: int) -> list[int]:
    """Return the living processes of a user. The owner of /proc/<pid> is root for non-dumpable ones, so read status."""
    found = []
    for pid in _all_processes():
        with contextlib.suppress(ProcessLookupError):
            if user in owners_of(pid, living=True):
                found.append(pid)
    return found


def _may_have_processes(user: int) -> bool:
    """Return whether a user may have processes, zombies included.

    A process that was gone when its status was read counts, too: one that forks and exits all the time shows up this
    way.
    """
    try:
        return any(user in owners_of(pid) for pid in _all_processes())
    except ProcessLookupError:
        return True


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are all we need


def owners_of(pid: int, living: bool = False) -> set[int]:
    """Return the user ids of a process; none for a zombie if only living ones count.

    A process whose first thread alone has ended counts as living.
    """
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - hundreds of them a worker
            status = file.read()
    except OSError:
        raise ProcessLookupError(pid) from None
    if living and (state := _STATE.search(status)) and state[1] in b"ZX" and not procfs.is_alive(pid):
        return set()
    owners = _OWNERS.search(status)
    return {int(word) for word in owners[1].split()} if owners else set()


def end_processes_of(user: int) -> None:
    """Kill all processes of this user.

    kill(-1) reaches all of them in one walk of the kernel's list, during which none can fork, so a fork bomb cannot
    escape.
    """
    deadline = time.monotonic() + END_DEADLINE_S
    left = _may_have_processes(user)
    while left and time.monotonic() < deadline:
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # else they are killed one by one
            subprocess.run(
                ["/bin/sh", "-c", "kill -s KILL -- -1"], user=user, group=user, extra_groups=(), cwd="/", env={},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=5, check=False,
            )  # fmt: skip
        pids = processes_of(user)
        for pid in pids:  # if there was no shell
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        left = bool(pids)
