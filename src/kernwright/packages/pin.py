"""Pin: one package at one exact version."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernwright.core.errors import KernwrightError

_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*))?"
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Pin:
    """A package at one version, with the hashes of the wheels that are accepted. No hashes: any wheel is accepted."""

    name: str
    version: str
    hashes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def canonical(name: str) -> str:
    """Return the normalized spelling of a package's name: Jinja2, jinja2 and JINJA2 are one package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_constraints(text: str) -> dict[str, Pin]:
    """Return the pins of a pip constraints file by package name."""
    pins = {}
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition("#")[0].partition(";")[0].split()
        match = _PIN.fullmatch(words[0]) if words else None
        if match and match["version"]:
            pin = Pin(canonical(match["name"]), match["version"], tuple(_HASH.findall(line)))
            pins[pin.name] = pin
    return pins


def resolve_pins(wanted: Iterable[str], known: dict[str, Pin]) -> list[Pin]:
    """Return a pin for each ``NAME`` or ``NAME==VERSION``.

    A missing version is taken from the known pins, else from the installed package.
    """
    found: dict[str, Pin] = {}
    for text in wanted:
        match = _PIN.fullmatch(text.strip())
        if match is None:
            raise KernwrightError(f"{text!r} names no package", "write NAME==VERSION, as in numpy==2.4.4")
        name = canonical(match["name"])
        pinned = known.get(name)
        version = match["version"] or (pinned.version if pinned else _installed(name))
        found[name] = pinned if pinned and pinned.version == version else Pin(name, version)
    return list(found.values())


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise KernwrightError(
            f"no version of {name} is known: it is neither in constraints.txt nor installed here",
            f"name one: --with {name}==VERSION",
        ) from None
