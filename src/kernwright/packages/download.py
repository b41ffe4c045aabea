"""Download wheels with pip, for this machine or another. A file is either complete or absent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.packages.files import sha256
from kernwright.packages.pin import Pin, canonical
from kernwright.packages.wheel_target import WheelTarget

_UNREACHABLE = re.compile(
    r"NewConnectionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|NameResolutionError|Connection refused"
    r"|Temporary failure in name resolution|Network is unreachable|ConnectionResetError|Max retries exceeded"
    r"|RemoteDisconnected|connection (?:error|broken)",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"Could not find a version that satisfies the requirement (\S+).*?\(from versions: ([^)]*)\)", re.DOTALL
)
_FULL = re.compile(r"No space left on device|Disk quota exceeded")


class Unreachable(EnvironmentProblem):
    """The package index did not answer."""


@dataclass(frozen=True)
class WheelSource:
    """The source of wheels: the index that pip is configured with, another index, or only a folder."""

    index: str | None = None
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.folder and not self.folder.is_dir():  # pip treats a missing folder as an empty one
            raise KernwrightError(f"--find-links {self.folder}: no such folder", "name a folder that holds wheels")

    def __str__(self) -> str:
        return str(self.folder) if self.folder else "the package index"

    def arguments(self) -> list[str]:
        """Return the arguments that make pip use this source."""
        if self.folder:
            return ["--isolated", "--no-index", "--find-links", str(self.folder)]
        return ["--index-url", self.index] if self.index else []

    def environment(self) -> dict[str, str]:
        """Return the environment for pip. With a folder as source, pip reads no configuration that adds an index."""
        return os.environ | ({"PIP_CONFIG_FILE": os.devnull} if self.folder else {})


def fetch(pins: Sequence[Pin], target: WheelTarget, source: WheelSource, folder: Path) -> dict[Pin, Path]:
    """Return the wheel of each pin. Wheels that are already in ``folder`` are not downloaded again."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [pin for pin in pins if _kept(pin, folder) is None]
    if missing:
        with tempfile.TemporaryDirectory(prefix="pip-", dir=folder) as scratch:
            _pip_download(missing, target, source, Path(scratch))
            for wheel in Path(scratch).glob("*.whl"):
                wheel.replace(folder / wheel.name)
    return {pin: _known(pin, folder) for pin in pins}


def _known(pin: Pin, folder: Path) -> Path:
    wheel = _kept(pin, folder)
    if wheel is None:
        raise KernwrightError(f"pip reported success but left no wheel of {pin}", "update pip and repeat")
    _refuse_other_bytes(pin, wheel)
    return wheel


def _kept(pin: Pin, folder: Path) -> Path | None:
    for wheel in folder.glob("*.whl"):
        name, version, *_ = wheel.name.split("-")
        if canonical(name) == pin.name and version == pin.version.replace("-", "_"):
            return wheel
    return None


def _refuse_other_bytes(pin: Pin, wheel: Path) -> None:
    found = sha256(wheel)
    if pin.hashes and found not in pin.hashes:
        wheel.unlink()  # so that the next attempt downloads it again
        raise KernwrightError(
            f"{wheel.name} has SHA-256 {found}; the hash of {pin} is pinned to {' or '.join(pin.hashes)}",
            "find out whether the index or the download changed it; to accept it, delete the bundle or update the hash",
        )


def _pip_download(pins: Sequence[Pin], target: WheelTarget, source: WheelSource, folder: Path) -> None:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
        "--retries", "2", "--no-deps", "--only-binary=:all:", "--implementation", "cp",
        "--python-version", target.python, "--dest", str(folder), *source.arguments(),
    ]  # fmt: skip
    for platform in target.platforms:
        command += ["--platform", platform]
    command += [str(pin) for pin in pins]
    environment = source.environment() | {"TMPDIR": str(folder)}  # the default one may be on a smaller disk
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    if done.returncode:
        raise _explained(done.stderr + done.stdout, pins, target, source)


def _explained(said: str, pins: Sequence[Pin], target: WheelTarget, source: WheelSource) -> KernwrightError:
    """Return the error to raise for pip's output: one cause and its remedy."""
    if "No module named pip" in said:
        return EnvironmentProblem(f"{sys.executable} has no pip", "run `python -m ensurepip`, or use another Python")
    if _FULL.search(said):
        return EnvironmentProblem("the disk is full", "free some space and repeat; finished downloads are kept")
    if _UNREACHABLE.search(said):
        return Unreachable(
            f"{source} cannot be reached", "repeat with a network, or give --find-links a folder that holds the wheels"
        )
    if match := _MISSING.search(said):
        others = match[2].strip()
        remedy = (
            f"it has versions {others[-200:]}: choose one with --with NAME==VERSION"
            if others and others != "none"
            else "put the wheel into that folder, or omit --find-links"
            if source.folder
            else "check the name, --python and --platform; a package without wheels cannot be bundled"
        )
        return KernwrightError(f"{source} has no wheel of {match[1]} for {target}", remedy)
    last = [line for line in said.splitlines() if line.strip()][-1:] or ["no output"]
    return KernwrightError(
        f"pip could not download {', '.join(map(str, pins))}: {last[0][:300]}", "resolve what pip reports"
    )
