"""WheelTarget: the Python version and the platforms that wheels must support."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from kernwright.core.errors import KernwrightError

PYTHONS = ("3.11", "3.12")
DEFAULT_PLATFORM = "manylinux_2_28_x86_64"
_OLDEST_GLIBC = 17  # glibc of manylinux2014, for which pip accepts older wheels


class WheelTarget(BaseModel):
    """The Python version of a machine and the wheel platforms that it accepts, newest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    python: str
    platforms: tuple[str, ...]

    def __str__(self) -> str:
        return f"Python {self.python} on {self.platforms[0]}"


def make_target(python: str | None, platforms: Sequence[str]) -> WheelTarget:
    """Return the target of a Python version (by default this one) and wheel platforms."""
    python = python or f"{sys.version_info.major}.{sys.version_info.minor}"
    if python not in PYTHONS:
        raise KernwrightError(
            f"--python {python}: Kernwright runs on Python {' and '.join(PYTHONS)}",
            "give the major and minor version of `python3 --version` on that machine",
        )
    accepted: dict[str, None] = {}
    for platform in platforms or (DEFAULT_PLATFORM,):
        if not re.fullmatch(r"[a-z][a-z0-9_]*_[a-z0-9_]+", platform):
            raise KernwrightError(
                f"--platform {platform}: is not a wheel platform", f"write it as in {DEFAULT_PLATFORM}"
            )
        accepted |= dict.fromkeys(_accepted_by(platform))
    return WheelTarget(python=python, platforms=tuple(accepted))


def _accepted_by(platform: str) -> list[str]:
    """Return the platforms of a machine. A newer glibc runs wheels for older ones; pip does not infer this."""
    match = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", platform)
    if match is None:
        return [platform]
    glibc, machine = int(match[1]), match[2]
    older = [f"manylinux_2_{minor}_{machine}" for minor in range(glibc - 1, _OLDEST_GLIBC - 1, -1)]
    return [platform, *older, f"manylinux2014_{machine}"]
