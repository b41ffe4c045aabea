"""Pin: one package at one exact version, and which packages a machine without a network needs."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernwright.bundle.origin import constraints
from kernwright.core.errors import KernwrightError

# The closure of Kernwright's dependencies, less what every GPU machine has (EXPECTED).
CORE = (
    "annotated-doc", "annotated-types", "apache-tvm-ffi", "jinja2", "markdown-it-py", "markupsafe", "mdurl", "ninja",
    "nvidia-ml-py", "pydantic", "pydantic-core", "pygments", "rich", "shellingham", "typer", "typing-extensions",
    "typing-inspection",
)  # fmt: skip
TEST_TOOLS = ("hypothesis", "iniconfig", "packaging", "pluggy", "pytest", "sortedcontainers")
# Large, and built for one CUDA: the machine's own are used. `--with` brings one along.
EXPECTED = ("torch", "triton", "numpy", "scipy")

_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*))?"
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Pin:
    name: str
    version: str
    hashes: tuple[str, ...] = ()  # of the wheels that may be taken; any, where none is known

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def canonical(name: str) -> str:
    """One spelling for a package's name: an index takes Jinja2, jinja2 and JINJA2 for the same."""
    return re.sub(r"[-_.]+", "-", name).lower()


def known_pins() -> dict[str, Pin]:
    """The versions that the tests ran with: the checkout's constraints, or the copy inside an installed package."""
    path = constraints()
    return read_constraints(path.read_text(encoding="utf-8")) if path else {}


def read_constraints(text: str) -> dict[str, Pin]:
    pins = {}
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition("#")[0].partition(";")[0].split()
        match = _PIN.fullmatch(words[0]) if words else None
        if match and match["version"]:
            pin = Pin(canonical(match["name"]), match["version"], tuple(_HASH.findall(line)))
            pins[pin.name] = pin
    return pins


def resolve_pins(wanted: Iterable[str], known: dict[str, Pin]) -> list[Pin]:
    """Pins for ``NAME`` or ``NAME==VERSION``: a version that is not given is the known one, else the installed one."""
    found: dict[str, Pin] = {}
    for text in wanted:
        match = _PIN.fullmatch(text.strip())
        if match is None:
            raise KernwrightError(f"{text!r} names no package", "write NAME==VERSION, as in scipy==1.17.1")
        name = canonical(match["name"])
        pinned = known.get(name)
        version = match["version"] or (pinned.version if pinned else _installed(name))
        found[name] = pinned if pinned and pinned.version == version else Pin(name, version)
    return list(found.values())


def choose_pins(with_tests: bool, more: list[str]) -> tuple[tuple[Pin, ...], tuple[Pin, ...], tuple[Pin, ...]]:
    """The core, the test tools and what was asked for besides; an asked-for version of one of ours replaces ours."""
    known = known_pins()
    asked = {pin.name: pin for pin in resolve_pins(more, known)}
    core = tuple(asked.pop(pin.name, pin) for pin in resolve_pins(CORE, known))
    tools = resolve_pins(TEST_TOOLS, known) if with_tests else []
    tests = tuple(asked.pop(pin.name, pin) for pin in tools)
    return core, tests, tuple(asked.values())


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise KernwrightError(
            f"no version of {name} is known: it is neither in constraints.txt nor installed here",
            f"name one: --with {name}==VERSION",
        ) from None
