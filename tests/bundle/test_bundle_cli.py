"""``kernwright bundle`` as a user meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.bundle.requirements import CORE, TEST_TOOLS, known_pins
from kernwright.cli.packages import bundle as bundle_module


def kernwright(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernwright", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory, write_wheel: Callable[..., Path]) -> Path:
    """Return a folder with a tiny wheel for every name that a bundle contains."""
    folder = tmp_path_factory.mktemp("shelf")
    for name in (*CORE, *TEST_TOOLS):
        write_wheel(folder, name, version=known_pins()[name].version)
    write_wheel(folder, "extra", version="0.5")
    return folder


def test_a_bundle_from_a_folder_of_wheels(tmp_path: Path, shelf: Path) -> None:
    place = tmp_path / "b"
    words = ("bundle", place, "--python", "3.12", "--find-links", shelf, "--with", "extra==0.5", "--with-tests")
    done = kernwright(*words)
    assert done.returncode == 0, done.stderr
    for name in (*CORE, *TEST_TOOLS, "extra", "kernwright"):
        assert name in done.stdout
    assert f"PYTHONPATH={place}" in done.stdout.splitlines()
    assert "torch, triton, numpy" in done.stdout
    assert "up to date" in kernwright(*words).stderr
    assert kernwright("bundle", place, "--check").returncode == 0
    (place / "extra" / "__init__.py").write_text("")
    checked = kernwright("bundle", place, "--check")
    assert checked.returncode == 2 and "missing or changed" in checked.stderr


def test_a_core_that_grew_too_large_is_reported(
    tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bundle_module, "CORE_LIMIT_MIB", 0)
    bundle_module.bundle(tmp_path / "b", python="3.12", find_links=shelf)
    assert "warning: the core is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--python", "3.9"], "3.11 and 3.12"),
        (["--platform", "???"], "wheel platform"),
        (["--part-size", "large"], "'large'"),
        (["--with", "a b"], "names no package"),
        (["--find-links", "nowhere"], "nowhere is not a folder"),
        (["--check"], "is not a bundle"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_status_2(words: list[str], said: str, tmp_path: Path) -> None:
    done = kernwright("bundle", tmp_path / "b", *words)
    assert done.returncode == 2
    assert said in done.stderr and "remedy: " in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
