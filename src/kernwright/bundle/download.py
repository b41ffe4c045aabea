"""Download: wheels for another machine, fetched by pip, one whole file or none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.bundle.files import sha256
from kernwright.bundle.pin import Pin, canonical
from kernwright.bundle.target import Target
from kernwright.core.errors import EnvironmentProblem, KernwrightError

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
class Source:
    """Where wheels come from: pip's own configuration, another index, or a folder and nothing else."""

    index: str | None = None
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.folder and not self.folder.is_dir():  # pip takes one that is not there for an empty one
            raise KernwrightError(f"{self.folder}: there is no such folder", "give --find-links one that holds wheels")

    def __str__(self) -> str:
        return str(self.folder) if self.folder else "the package index"

    def arguments(self) -> list[str]:
        if self.folder:
            return ["--isolated", "--no-index", "--find-links", str(self.folder)]
        return ["--index-url", self.index] if self.index else []

    def environment(self) -> dict[str, str]:
        # A configuration file may add further places; a folder was asked for alone.
        return os.environ | ({"PIP_CONFIG_FILE": os.devnull} if self.folder else {})


def fetch(pins: Sequence[Pin], target: Target, source: Source, folder: Path) -> dict[Pin, Path]:
    """The wheel of each pin, from ``folder`` where an interrupted run left it, else downloaded to there."""
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
        wheel.unlink()  # kept, it would be met again by the next try
        raise KernwrightError(
            f"{wheel.name} is not the wheel of {pin} that is known: "
            f"its SHA-256 is {found}, not {' or '.join(pin.hashes)}",
            "the index or the download changed it: find out which; to accept it, delete the bundle or mend the hash",
        )


def _pip_download(pins: Sequence[Pin], target: Target, source: Source, folder: Path) -> None:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
        "--retries", "2", "--no-deps", "--only-binary=:all:", "--implementation", "cp",
        "--python-version", target.python, "--dest", str(folder), *source.arguments(),
    ]  # fmt: skip
    for platform in target.platforms:
        command += ["--platform", platform]
    command += [str(pin) for pin in pins]
    environment = source.environment() | {"TMPDIR": str(folder)}  # on the disk that is large enough for the bundle
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    if done.returncode:
        raise _explained(done.stderr + done.stdout, pins, target, source)


def _explained(said: str, pins: Sequence[Pin], target: Target, source: Source) -> KernwrightError:
    """What pip said, as one cause and its remedy."""
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
            f"there is {others[-200:]}: choose one with --with NAME==VERSION"
            if others and others != "none"
            else "put it there, or leave --find-links out"
            if source.folder
            else "check the name, --python and --platform; a package without wheels cannot be bundled"
        )
        return KernwrightError(f"{source} has no wheel of {match[1]} for {target}", remedy)
    last = [line for line in said.splitlines() if line.strip()][-1:] or ["it said nothing"]
    return KernwrightError(f"pip could not download {', '.join(map(str, pins))}: {last[0][:300]}", "mend what it names")
