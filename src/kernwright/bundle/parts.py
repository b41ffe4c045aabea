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
        raise KernwrightError(f"--part-size {text}: that is no size", "write it as in 48M")
    return int(match[1]) * _UNITS[match[2].upper()]


def pack(loads: list[PackageGroup], limit: int | None) -> list[list[PackageGroup]]:
    """Distribute whole groups over as few parts as first-fit in decreasing size finds. Without a limit: one part."""
    if limit is None:
        return [loads]
    parts: list[list[PackageGroup]] = []
    for load in sorted(_inseparable(loads), key=lambda load: (-load.bytes, load.names)):
        if load.bytes > limit:
            least = -(-load.bytes // (1 << 20))
            raise KernwrightError(
                f"{' with '.join(load.names)} alone is {load.bytes / (1 << 20):.1f} MiB, more than a part may be",
                f"give --part-size {least}M or more",
            )
        roomy = (part for part in parts if sum(other.bytes for other in part) + load.bytes <= limit)
        part = next(roomy, None)
        if part is None:
            parts.append([load])
        else:
            part.append(load)
    return parts


def _inseparable(loads: list[PackageGroup]) -> list[PackageGroup]:
    """Join groups that share a package with an __init__.py, which Python looks for in one folder only."""
    joined: list[PackageGroup] = []
    for load in loads:
        kin = [other for other in joined if other.regular & load.regular]
        joined = [other for other in joined if other not in kin]
        merged = PackageGroup([], [], 0)
        for each in (*kin, load):
            merged = PackageGroup(
                merged.names + each.names, merged.folders + each.folders,
                merged.bytes + each.bytes, merged.regular | each.regular,
            )  # fmt: skip
        joined.append(merged)
    return joined
