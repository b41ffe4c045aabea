"""Parts: a bundle cut into folders of a given size. Each is an entry for PYTHONPATH."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from kernwright.core.errors import KernwrightError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass
class PackageGroup:
    """Packages that must be in the same part, and the folders that they were unpacked to."""

    names: list[str]
    folders: list[Path]
    bytes: int
    regular: set[str] = field(default_factory=set)  # top-level packages with an __init__.py


def parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise KernwrightError(
            f"--part-size must be a size in bytes above 0, got {text!r}", "write it as in --part-size 48M"
        )
    return int(match[1]) * _UNITS[match[2].upper()]


def require_room(groups: list[PackageGroup], limit: int | None) -> None:
    """Raise KernwrightError if a part of `limit` bytes cannot hold the largest group. None is no limit."""
    largest = max(_inseparable(groups), key=lambda group: group.bytes, default=None)
    if limit is None or largest is None or largest.bytes <= limit:
        return
    least = -(-largest.bytes // (1 << 20))
    raise KernwrightError(
        f"{' with '.join(largest.names)} has {largest.bytes / (1 << 20):.1f} MiB, "
        f"but --part-size allows {limit / (1 << 20):.1f} MiB",
        f"give --part-size {least}M or more",
    )


def pack(groups: list[PackageGroup], limit: int | None) -> list[list[PackageGroup]]:
    """Distribute whole groups over few parts: the largest first, each to the first part with room for it.

    Without a limit there is one part.
    """
    if limit is None:
        return [groups]
    require_room(groups, limit)
    parts: list[list[PackageGroup]] = []
    for group in sorted(_inseparable(groups), key=lambda group: (-group.bytes, group.names)):
        roomy = (part for part in parts if sum(other.bytes for other in part) + group.bytes <= limit)
        part = next(roomy, None)
        if part is None:
            parts.append([group])
        else:
            part.append(group)
    return parts


def _inseparable(groups: list[PackageGroup]) -> list[PackageGroup]:
    """Join groups that share a package with an __init__.py, which Python looks for in one folder only."""
    joined: list[PackageGroup] = []
    for group in groups:
        kin = [other for other in joined if other.regular & group.regular]
        joined = [other for other in joined if other not in kin]
        merged = PackageGroup([], [], 0)
        for each in (*kin, group):
            merged = PackageGroup(
                merged.names + each.names, merged.folders + each.folders,
                merged.bytes + each.bytes, merged.regular | each.regular,
            )  # fmt: skip
        joined.append(merged)
    return joined
