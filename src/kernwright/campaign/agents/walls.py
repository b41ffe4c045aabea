"""Walls: the restrictions of a program that is an agent. The process restricts itself, then executes the program.

The agent reads whatever its user may read, and writes only to the folders that it is given.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kernwright.judge.system import landlock
from kernwright.judge.system.linux import (
    PR_SET_NO_NEW_PRIVS,
    bar_capabilities,
    drop_capabilities,
    prctl,
    syscall,
)
from kernwright.judge.system.namespaces import leave_network
from kernwright.judge.system.seccomp import SeccompUnavailable, refuse_calls

Network = Literal["none", "local", "all"]
# Rights that change something. Reading and executing stay free, and so does ioctl, which GPUs need.
_READING = landlock.EXECUTE | landlock.READ_FILE | landlock.READ_DIR | landlock.IOCTL_DEV
_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # on every architecture
TERMINALS = ("/dev/tty", "/dev/ptmx", "/dev/pts")


@dataclass(frozen=True)
class Walls:
    """The folders that the agent may write, and its network.

    `network` is `none` (no sockets at all), `local` (only sockets of this machine's file system) or `all`.
    """

    writes: tuple[str, ...]
    network: Network = "none"

    def as_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> Walls:
        fields: dict[str, Any] = json.loads(text)
        return cls(tuple(fields["writes"]), fields["network"])

    def put_up(self) -> list[str]:
        """Restrict this process and its future children, permanently. Return what this machine could not restrict.

        Raises:
            landlock.LandlockUnavailable: files cannot be protected; the agent must not start.
        """
        missing: list[str] = []
        if self.network != "all":
            try:
                leave_network(stays_the_same_user=True)
            except OSError as error:
                missing.append(f"a network namespace: {error.strerror}")
        bar_capabilities()
        try:
            drop_capabilities()
        except OSError as error:
            missing.append(f"dropped capabilities: {error.strerror}")
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        missing += _close_writes(self.writes, tcp=self.network != "all")
        if self.network != "all":
            try:
                refuse_calls(unix_sockets=self.network == "local")
            except SeccompUnavailable as error:
                missing.append(f"a wall around system calls: {error}")
        return missing


def _close_writes(writes: tuple[str, ...], tcp: bool) -> list[str]:
    """Deny writes everywhere else, TCP if asked, and signals to processes outside."""
    version = landlock.landlock_version()
    if version == 0:
        raise landlock.LandlockUnavailable("this kernel has no landlock")
    rights = landlock.rights_of(version) & ~_READING
    words = [rights]
    if version >= landlock.TCP_SINCE:
        words.append(landlock.TCP if tcp else 0)
    if version >= landlock.SCOPES_SINCE:
        words.append(landlock.ABSTRACT_SOCKETS | landlock.SIGNALS)
    attributes = ctypes.create_string_buffer(struct.pack(f"@{len(words)}Q", *words))
    # The threads of CUDA's driver name themselves in /proc. The files there that belong to root stay closed to others.
    processes = "/proc/self" if os.getuid() == 0 else "/proc"
    devices = rights & landlock.WRITE_FILE
    try:
        ruleset = syscall("landlock", _CREATE_RULESET, attributes, 8 * len(words), 0)
        try:
            nodes = landlock.MAKE_CHAR | landlock.MAKE_BLOCK
            landlock._open(ruleset, (*writes, processes), rights & ~nodes)
            landlock._open(ruleset, (*landlock.device_nodes(), *TERMINALS), devices)
            syscall("landlock", _RESTRICT_SELF, ruleset, 0)
        finally:
            os.close(ruleset)
    except OSError as error:
        raise landlock.LandlockUnavailable(str(error.strerror)) from None
    missing = [] if version >= landlock.SCOPES_SINCE else ["a wall against signals: this kernel's landlock has none"]
    return missing + ([] if rights & landlock.TRUNCATE else ["a wall against truncation: landlock has none"])
