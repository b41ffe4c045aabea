"""Landlock: permanent restrictions on the files, ports and signals of a process. They need no privilege.

Everything that is not named is denied. A folder inside an allowed one cannot be denied again, so few are allowed.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernwright.judge.system.linux import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_VERSION_ONLY, _PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
TCP = 0b11
ABSTRACT_SOCKETS, SIGNALS = 1 << 0, 1 << 1
# File rights that each version of the interface adds.
_FIRST_RIGHTS = (1 << 13) - 1
_ADDED_RIGHTS = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
TCP_SINCE, SCOPES_SINCE = 4, 6


class LandlockUnavailable(Exception):
    """The reason why landlock is unavailable."""


@dataclass(frozen=True)
class AllowedPaths:
    """Allowed paths: trees to read and execute, trees to write, device nodes, folders to list."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    devices: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()


@dataclass(frozen=True)
class LandlockState:
    """The restrictions that this version of landlock supports."""

    version: int
    tcp: bool
    signals: bool


def landlock_version() -> int:
    """Return the version of landlock; zero if the kernel has none or has disabled it."""
    try:
        return syscall("landlock", _CREATE_RULESET, None, 0, _VERSION_ONLY)
    except OSError:
        return 0


def rights_of(version: int) -> int:
    rights = _FIRST_RIGHTS
    for since, right in _ADDED_RIGHTS.items():
        rights |= right if version >= since else 0
    return rights


def close_all_but(opened: AllowedPaths) -> LandlockState:
    """Deny everything else to this thread and its future children, permanently. Requires no_new_privs."""
    version = landlock_version()
    if version == 0:
        raise LandlockUnavailable("this kernel has no landlock")
    rights = rights_of(version)
    tcp, scopes = version >= TCP_SINCE, version >= SCOPES_SINCE
    words = [rights]
    if tcp:
        words.append(TCP)
    if scopes:
        words.append(ABSTRACT_SOCKETS | SIGNALS)
    attributes = ctypes.create_string_buffer(struct.pack(f"@{len(words)}Q", *words))
    try:
        ruleset = syscall("landlock", _CREATE_RULESET, attributes, 8 * len(words), 0)
        try:
            reading = EXECUTE | READ_FILE | READ_DIR
            _open(ruleset, opened.reads, reading)
            _open(ruleset, opened.writes, rights & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV))
            _open(ruleset, opened.devices, rights & (READ_FILE | WRITE_FILE | READ_DIR | IOCTL_DEV))
            _open(ruleset, opened.lists, READ_DIR)
            syscall("landlock", _RESTRICT_SELF, ruleset, 0)
        finally:
            os.close(ruleset)
    except OSError as error:
        raise LandlockUnavailable(str(error.strerror)) from None
    return LandlockState(version, tcp, scopes)


def _open(ruleset: int, paths: Iterable[str], rights: int) -> None:
    for path in paths:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # missing, or inaccessible anyway
        try:
            is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
            rule = struct.pack("=Qi", rights if is_folder else rights & OF_A_FILE, place)
            syscall("landlock", _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.create_string_buffer(rule, len(rule)), 0)
        finally:
            os.close(place)


def device_nodes() -> tuple[str, ...]:
    """Return the harmless device nodes and those of GPUs: no disks, no terminals, no shared memory folder."""
    plain = ("null", "zero", "full", "random", "urandom")
    return (
        *(f"/dev/{name}" for name in plain),
        *map(str, sorted(Path("/dev").glob("nvidia*"))),
        *(str(path) for path in (Path("/dev/dxg"),) if path.exists()),
    )
