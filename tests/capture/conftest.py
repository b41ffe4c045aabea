"""Fixtures: real programs under a real `kernwright capture`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernwright.capture.capture import Capture, CapturedCall, CapturedScalar, read_capture

LIBRARY = '''
"""Functions to be watched. They take anything, so most tests need no torch."""

import functools


def scale(x, factor=2.0, *, label=None):
    return x


def fail(x):
    raise ValueError("no")


def down(n):
    return n if n == 0 else down(n - 1)


def several(*items):
    return items


@functools.lru_cache
def cached(x):
    return 2 * x


class Locked(dict):
    def __iter__(self):
        raise RuntimeError("nobody may look")

    __len__ = items = keys = __iter__


class Shut(list):
    def __len__(self):
        raise RuntimeError("nobody may count")


def guarded(x, options=Locked(rate=1), places=Shut()):
    return x


async def later(x):
    return x


class Layer:
    rate = 3

    def forward(self, x):
        return x

    @staticmethod
    def plain(x):
        return x

    @classmethod
    def made(cls, x):
        return cls.__name__


constant = 3
'''


@dataclass(frozen=True)
class Run:
    """What a user sees after a capture: output, exit status and the capture file."""

    done: subprocess.CompletedProcess[str]
    file: Path

    @property
    def capture(self) -> Capture:
        return read_capture(self.file)

    def counts(self) -> dict[str, int]:
        """Return the number of calls by callable and scalars, as `name(1, 2.0)`. A call that raised has the exception
        behind it."""
        return {_short(call): call.count for call in self.capture.calls}


def _short(call: CapturedCall) -> str:
    values = [
        repr(a.value.value) if isinstance(a.value, CapturedScalar) else f"<{getattr(a.value, 'type', a.value.kind)}>"
        for a in call.arguments
    ]
    return f"{call.call.partition(':')[2]}({', '.join(values)}){f' {call.raised}' if call.raised else ''}"


def _is_op(target: str) -> bool:
    return "::" in target or ":" not in target


def _command(file: Path, targets: Sequence[str], command: Sequence[object]) -> list[str]:
    options = [word for target in targets for word in ("--op" if _is_op(target) else "--call", target)]
    kernwright = [sys.executable, "-m", "kernwright.cli.main", "capture", *options, "--out", str(file)]
    return [*kernwright, "--", *map(str, command)]


@pytest.fixture
def capture_command() -> Callable[[Path, Sequence[str], Sequence[object]], list[str]]:
    return _command


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return a folder with the library and room for a program."""
    (tmp_path / "library.py").write_text(LIBRARY)
    return tmp_path


@pytest.fixture
def environment() -> dict[str, str]:
    """Return the environment of a program: that of the tests, without anything that would find the library by
    accident."""
    return dict(os.environ)


@pytest.fixture(scope="session")
def capture_in() -> Callable[..., Callable[..., Run]]:
    """Return a function that returns what `capture` does, for a folder."""
    return _capture_in


@pytest.fixture
def capture(program: Path, environment: dict[str, str]) -> Callable[..., Run]:
    """Return a function that runs a script, or a whole command, under capture."""
    return _capture_in(program, environment)


def _capture_in(program: Path, environment: dict[str, str]) -> Callable[..., Run]:
    def run(
        script: str, *targets: str, command: Sequence[object] | None = None, arguments: Sequence[str] = (), **more: Any
    ) -> Run:
        for name, text in {"script.py": script, **more.pop("prepare", {})}.items():
            (program / name).write_text(text)
        file = program / "capture.jsonl"
        words = _command(file, targets, command or [sys.executable, "script.py", *arguments])
        done = subprocess.run(
            words, cwd=program, env=environment | more.pop("env", {}), capture_output=True, text=True, check=False,
            timeout=120, **more,
        )  # fmt: skip
        return Run(done, file)

    return run
