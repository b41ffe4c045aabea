"""Worker user: where the judge is root, each worker gets a user of its own, the oldest wall that the kernel has."""

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

# Above every range that distributions and systemd hand out. Each judge has 64 of its own by its process number, so
# two judges on one machine never share one.
FIRST_USER, USERS_PER_JUDGE = 0x70000000, 64
# In a container that maps only the first 65,536: between ordinary users and systemd's dynamic ones.
FIRST_SMALL, SMALL_USERS = 57_344, 3_840
# To become another user, hand it a folder, clean up after it and end it. A container's root has all of these.
NEEDED = ("SETUID", "SETGID", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL")
END_DEADLINE_S = 20.0

_slots = itertools.count()
_STATE, _OWNERS = re.compile(rb"^State:\t(\S)", re.MULTILINE), re.compile(rb"^Uid:\t(.*)$", re.MULTILINE)


def why_no_other_user() -> str | None:
    """Why workers must run as the judge's own user; None where they need not."""
    if os.geteuid() != 0:
        return "the judge is not root"
    if lacking := [name for name in NEEDED if name not in held_capabilities()]:
        return f"root lacks CAP_{', CAP_'.join(lacking)} here"
    with contextlib.suppress(OSError):
        if Path("/proc/self/setgroups").read_text().strip() == "deny":
            return "this user namespace lets nobody change groups"
    return None


def user_for(folder: Path) -> int:
    """The folder's owner, if that is one of this judge's worker users already; otherwise one that nobody uses."""
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
    """Whether this user exists at all in our user namespace."""
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(inside <= user < inside + count for inside, _, count in ranges)


def _is_known(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def barred_folders(paths: Iterable[Path]) -> set[Path]:
    """The folders on the way to these paths that a stranger may not enter."""
    folders = {folder for path in paths for way in (path.absolute(), path.resolve()) for folder in way.parents}
    return {folder.resolve() for folder in folders if not folder.stat().st_mode & stat.S_IXOTH}


def outermost(folders: Iterable[Path]) -> list[str]:
    found = set(folders)
    return sorted(str(folder) for folder in found if found.isdisjoint(folder.parents))


def unreadable(paths: Iterable[Path]) -> Path | None:
    """The first of these that a stranger could not read even if all folders above it were open."""
    for path in paths:
        mode = path.stat().st_mode
        wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
        if mode & wanted != wanted:
            return path
    return None


def processes_of(user: int) -> list[int]:
    """Living processes of a user. Read from status: the owner of /proc/<pid> is root for those that hide."""
    found = []
    for pid in _all_processes():
        with contextlib.suppress(ProcessLookupError):
            if user in owners_of(pid, living=True):
                found.append(pid)
    return found


def _may_have_processes(user: int) -> bool:
    """Whether a user has any, dead ones included, or one on the list was gone when it was looked at. Who forks and
    exits all the time, always ahead of us, shows up in one of these ways."""
    try:
        return any(user in owners_of(pid) for pid in _all_processes())
    except ProcessLookupError:
        return True


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are all we need


def owners_of(pid: int, living: bool = False) -> set[int]:
    """The users that a process acts for; none for an unburied one where the living are asked for. One whose first
    thread alone has ended is among these."""
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
    """Ends all that runs as this user. kill(-1) reaches every one of them in a single walk of the kernel's list, during
    which none can fork: a fork bomb cannot outrun it."""
    deadline = time.monotonic() + END_DEADLINE_S
    left = _may_have_processes(user)
    while left and time.monotonic() < deadline:
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # no shell, or no process to be had: one by one
            subprocess.run(
                ["/bin/sh", "-c", "kill -s KILL -- -1"], user=user, group=user, extra_groups=(), cwd="/", env={},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=5, check=False,
            )  # fmt: skip
        pids = processes_of(user)
        for pid in pids:  # where there was no shell
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        left = bool(pids)
