"""Hardware counters: whether this process may read them, as `kernwright ncu` needs."""

from __future__ import annotations

import re
from pathlib import Path

from kernwright.diagnose.doctor.finding import Finding

# The first is the name of the kernel module's option. proc shows its value under the first or the second name.
_RESTRICTION = re.compile(r"^\s*(?:NVreg_)?(?:RestrictProfilingToAdminUsers|RmProfilingAdminOnly)\s*:\s*(\d+)", re.M)
_CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38}
_EVERYONE = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"


def check_counters(has_gpu: bool, root: Path = Path("/")) -> Finding:
    """Report whether the driver lets this process read hardware counters.

    Args:
        root: the root of the file system, below which proc lies.
    """
    restricted = is_restricted(root)
    held = capabilities(root)
    details = {"restricted": restricted, "capabilities": held}
    if restricted is None and not has_gpu:
        return Finding(
            check="counters",
            status="missing",
            found="no driver",
            cause="there are no hardware counters without a GPU",
            remedy="capture on a machine with an NVIDIA GPU; exported reports of ncu are read without one",
            details=details,
        )
    if restricted is None:
        return Finding(
            check="counters",
            status="warning",
            found="unknown",
            cause="/proc/driver/nvidia/params does not tell whether the driver restricts them",
            remedy="try `ncu --query-metrics`; if ncu reports ERR_NVGPUCTRPERM, load the driver with "
            f"`{_EVERYONE}`, or run as an administrator",
            details=details,
        )
    if not restricted:
        return Finding(check="counters", status="ok", found="open to all users", details=details)
    if held:
        return Finding(
            check="counters", status="ok", found=f"open to administrators ({', '.join(held)})", details=details
        )
    return Finding(
        check="counters",
        status="problem",
        found="open to administrators only",
        cause="the driver restricts profiling (RmProfilingAdminOnly: 1), and this process has neither CAP_SYS_ADMIN "
        "nor CAP_PERFMON on the host",
        remedy="run ncu with sudo, start the container with --cap-add=SYS_ADMIN, or allow all users: write "
        f"`{_EVERYONE}` to a file in /etc/modprobe.d of the host and reboot it",
        details=details,
    )


def is_restricted(root: Path = Path("/")) -> bool | None:
    """Return whether the driver lets only administrators profile, or None if that is not known."""
    try:
        text = (root / "proc/driver/nvidia/params").read_text(errors="replace")
    except OSError:
        return None
    match = _RESTRICTION.search(text)
    return match[1] != "0" if match else None


def capabilities(root: Path = Path("/")) -> list[str]:
    """Return the capabilities with which this process may profile a restricted GPU.

    In a user namespace, root has every capability, but the driver checks the capabilities of the host.
    """
    try:
        status = (root / "proc/self/status").read_text()
        users = (root / "proc/self/uid_map").read_text().split()
    except OSError:
        return []
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", status, re.M)
    if match is None or users[:2] != ["0", "0"] or int(users[2]) < 0xFFFF_FFFF:
        return []
    held = int(match[1], 16)
    return [name for name, bit in _CAPABILITIES.items() if held >> bit & 1]
