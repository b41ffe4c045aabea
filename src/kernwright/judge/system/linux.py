"""Linux system calls that Python does not wrap. A refusal is an OSError with the kernel's error."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
CAPABILITIES = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7, "SYS_ADMIN": 21,
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: object) -> int:
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *words), what)


def prctl(option: int, argument: int = 0) -> int:
    zero = ctypes.c_ulong(0)
    return _checked(_libc.prctl(option, ctypes.c_ulong(argument), zero, zero, zero), "prctl")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind, data)]
    done = _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    _checked(done, f"mount on {target}")


def held_capabilities() -> frozenset[str]:
    """Return the effective capabilities of this process, of those that matter here."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123 - no pathlib needed
        mask = next((int(line.split()[1], 16) for line in status if line.startswith("CapEff:")), 0)
    return frozenset(name for name, bit in CAPABILITIES.items() if mask >> bit & 1)


def bar_capabilities() -> None:
    """Drop all capabilities from the bounding set, for every program that is executed later, also as root.

    This process keeps its capabilities: one of them is the right to do this.
    """
    for bit in range(64):
        try:
            prctl(PR_CAPBSET_DROP, bit)
        except OSError:
            return  # beyond the last capability of this kernel, or without the right


def drop_capabilities() -> None:
    """Drop all capabilities of this process."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _checked(_libc.capset(header, nothing), "capset")
