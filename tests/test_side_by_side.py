"""How the suite is parted: each test in one process, a failure anywhere is a failure, and a share is a share."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("side_by_side.py")


def loaded(path: Path) -> ModuleType:
    """By its file: there are several conftests."""
    spec = importlib.util.spec_from_file_location(f"suite_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def side_by_side() -> ModuleType:
    return loaded(SCRIPT)


def test_each_part_runs_and_tells(side_by_side: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, claim in (("good", "True"), ("bad", "False")):
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}(): assert {claim}")
    parts = tuple(side_by_side.Part(name, (str(tmp_path / f"test_{name}.py"),)) for name in ("good", "bad"))
    assert side_by_side.run(parts, ["-q", "-p", "no:cacheprovider"]) == [0, 1]
    told = capsys.readouterr().out
    assert "==== good" in told and "FAILED" in told


@pytest.mark.parametrize("words", [["-m", "gpu"], [str(SCRIPT)]])
def test_what_would_undo_the_parting_is_refused(words: list[str]) -> None:
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2 and "python -m pytest" in done.stderr


def test_processes_that_share_a_folder_run_each_test_once(tmp_path: Path) -> None:
    shutil.copy(SCRIPT.with_name("conftest.py"), tmp_path)
    (tmp_path / "claims").mkdir()
    (tmp_path / "test_shared.py").write_text(SHARED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_shared.py")]
    environment = os.environ | {"KERNWRIGHT_TEST_CLAIMS": str(tmp_path / "claims"), "RAN": str(tmp_path / "ran")}
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path) for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[0] for process in running]
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran) == [str(number) for number in range(8)], said
    assert len({process.returncode for process in running} - {0, 5}) == 0, said


SHARED = """
import os, pytest

@pytest.mark.parametrize("number", range(8))
def test_one(number):
    with open(os.environ["RAN"], "a") as log:
        log.write(f"{number} ")
"""


def test_parts_side_by_side_share_the_processors(side_by_side: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in side_by_side.THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert side_by_side.environment(3)["OMP_NUM_THREADS"] == "2"
    assert side_by_side.environment(30)["MKL_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in side_by_side.environment(1)  # a part by itself has the machine
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert side_by_side.environment(3)["OMP_NUM_THREADS"] == "5"


def test_every_test_runs_once(side_by_side: ModuleType) -> None:
    """Of each file: either all of its tests in one part, or the slow ones in one and the others in another."""
    parts = side_by_side.TOGETHER + side_by_side.ALONE
    for file in SCRIPT.parent.rglob("test_*.py"):
        assert sorted(_selected(part) for part in parts if _has(part, file)) in (["all"], ["not slow", "slow"]), file


def _has(part: Any, file: Path) -> bool:
    paths = [Path(word) for word in part.words if word.startswith("/")]
    ignored = [Path(word.removeprefix("--ignore=")) for word in part.words if word.startswith("--ignore=")]
    return any(map(file.is_relative_to, paths)) and not any(map(file.is_relative_to, ignored))


def _selected(part: Any) -> str:
    return str(part.words[part.words.index("-m") + 1]) if "-m" in part.words else "all"
