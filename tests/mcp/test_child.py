"""Children of the server: their limits and their errors."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.mcp import child as children


def error_of(folder: Path, *words: str) -> KernwrightError:
    """Return the error of a child that fails."""

    async def main() -> KernwrightError:
        async with children.child(words, folder, limited=True) as process:
            await process.output()
            assert await process.status() != 0
            return await process.error("the work")

    return anyio.run(main)


def test_a_child_ends_at_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed trace of a few kilobytes may unpack to terabytes."""
    monkeypatch.setattr(children, "MOST_CPU_S", 1)
    assert "processor time" in error_of(tmp_path, "timeit", "-n", "1", "while True: pass").cause
    monkeypatch.setattr(children, "MOST_CPU_S", 100)
    assert "memory" in error_of(tmp_path, "timeit", "-n", "1", "bytearray(1 << 50)").cause


def test_an_error_of_the_command_line_is_passed_on_and_any_other_is_not(tmp_path: Path) -> None:
    known = error_of(tmp_path, "kernwright", "task", "show", "no_such_task")
    assert "no_such_task" in known.cause and known.remedy and "\n" not in known.remedy
    other = error_of(tmp_path, "timeit", "1 / 0")
    assert isinstance(other, EnvironmentProblem) and other.remedy and "ZeroDivisionError" not in str(other)
