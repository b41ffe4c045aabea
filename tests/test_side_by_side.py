"""The suite is split over processes: each test runs in one of them, and any failure fails the whole."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).with_name("side_by_side.py")


def loaded(path: Path) -> ModuleType:
    """Load the module from its file, because there are several conftests."""
    spec = importlib.util.spec_from_file_location(f"suite_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start pytest without its plugins, which take a second to import."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture(scope="module")
def side_by_side() -> ModuleType:
    return loaded(SCRIPT)


def copy_conftest(folder: Path) -> None:
    """Copy what the small suites of these tests need. They judge nothing."""
    shutil.copy(SCRIPT.with_name("conftest.py"), folder)
    (folder / "judging_once.py").write_text("def judge_once(patch): ...\n")


def test_parts_share_the_files_and_a_failure_in_one_is_reported(
    side_by_side: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_conftest(tmp_path)
    for name, claim in (("good", "True"), ("bad", "False")):
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}(): assert {claim}")
    (tmp_path / "test_unimportable.py").write_text("import no_such_module")
    parts = tuple(side_by_side.Part(name, (str(tmp_path),)) for name in ("one", "other"))
    codes = side_by_side.run(parts, ["-q", "-p", "no:cacheprovider"])
    assert 1 in codes and set(codes) <= {0, 1, 5}
    told = capsys.readouterr().out
    assert "==== one" in told and "==== other" in told and told.count("FAILED") == 1
    assert len(re.findall(r"^ERROR .*test_unimportable", told, re.MULTILINE)) == 1
    (tmp_path / "test_unimportable.py").unlink()
    (alone,) = side_by_side.run(parts[:1], ["-q", "-p", "no:cacheprovider"])
    assert alone == 1 and "1 failed, 1 passed" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["-m", "gpu"], [str(SCRIPT)]])
def test_options_that_would_undo_the_split_are_refused(words: list[str]) -> None:
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2 and "python -m pytest" in done.stderr


@pytest.mark.parametrize("whole_files", [False, True])
def test_processes_that_share_a_folder_run_each_test_once(tmp_path: Path, whole_files: bool) -> None:
    copy_conftest(tmp_path)
    (tmp_path / "claims").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text(SHARED.replace("NAME", name))
    (tmp_path / "long_files.txt").write_text("test_c.py test_a.py\n")  # for one process
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = os.environ | {"KERNWRIGHT_TEST_CLAIMS": str(tmp_path / "claims"), "RAN": str(tmp_path / "ran")}
    environment.pop("KERNWRIGHT_TEST_CLAIM_FILES", None)
    environment |= {"KERNWRIGHT_TEST_CLAIM_FILES": "1"} if whole_files else {}
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path) for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[0] for process in running]
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert sorted(test for test, _ in ran) == [f"{name}{number}" for name in "abc" for number in range(4)], said
    assert len({process.returncode for process in running} - {0, 5}) == 0, said
    if whole_files:
        assert all(len({process for test, process in ran if test[0] in names}) == 1 for names in ("ac", "b")), ran


SHARED = """
import os, pytest

@pytest.mark.parametrize("number", range(4))
def test_one(number):
    with open(os.environ["RAN"], "a") as log:
        log.write(f"NAME{number} {os.getpid()}\\n")
"""


def test_parts_side_by_side_share_the_processors(side_by_side: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in side_by_side.THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert side_by_side.environment(3)["OMP_NUM_THREADS"] == "2"
    assert side_by_side.environment(30)["MKL_NUM_THREADS"] == "1"
    assert side_by_side.environment(1)["OMP_NUM_THREADS"] == "1"  # whose threads would wait for each other
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert side_by_side.environment(3)["OMP_NUM_THREADS"] == "5"


def test_parts_write_bytecode_for_each_other(
    side_by_side: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    copy_conftest(tmp_path)
    (tmp_path / "helper.py").write_text("x = 1\n")
    (tmp_path / "test_importing.py").write_text(IMPORTING)
    assert side_by_side.run((side_by_side.Part("one", (str(tmp_path),)),), ["-q", "-p", "no:cacheprovider"]) == [0]
    assert list((tmp_path / "__pycache__").glob("helper.*.pyc"))


IMPORTING = """
import subprocess, sys

def test_import():
    subprocess.run([sys.executable, "-c", "import helper"], check=True, cwd=__file__.rpartition("/")[0])
"""


def test_files_that_are_claimed_first_exist() -> None:
    names = SCRIPT.with_name("long_files.txt").read_text().split()
    assert [name for name in names if not (SCRIPT.parent / name).is_file()] == []
    assert len(set(names)) == len(names)


def test_a_pinned_part_has_one_processor_and_times_every_block(
    side_by_side: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_conftest(tmp_path)
    (tmp_path / "test_pinned.py").write_text(PINNED)
    before = os.sched_getaffinity(0)
    for processor in before:
        monkeypatch.setenv("EXPECTED", str(processor))
        part = side_by_side.Part("pinned", (str(tmp_path),), processor, is_timed=True)
        assert side_by_side.run((part,), ["-q", "-p", "no:cacheprovider"]) == [0]
    assert os.sched_getaffinity(0) == before


PINNED = """
import os

def test_processor():
    assert os.sched_getaffinity(0) == {int(os.environ["EXPECTED"])}
    assert "KERNWRIGHT_TEST_JUDGE_ONCE" not in os.environ
"""


def test_every_test_runs_once(side_by_side: ModuleType) -> None:
    """The selections exclude each other, and no file outside a selection has a test for it."""
    together, pinned, alone = side_by_side.together(2), side_by_side.pinned(range(4)), side_by_side.alone()
    assert {part.words for part in together} == {(str(SCRIPT.parent), "-m", "not clock and not whole_machine")}
    assert {part.words[-1] for part in pinned} == {"clock and not whole_machine"}
    assert alone.words[-1] == "whole_machine"
    assert [part.processor for part in (*together, *pinned, alone)] == [None] * 4 + [0, 1] + [None]
    assert len(side_by_side.pinned({3})) == 1
    for part, mark in ((pinned[0], "clock"), (alone, "whole_machine")):
        marked = {
            path for path in SCRIPT.parent.rglob("test_*.py") if re.search(rf"\bmark\.{mark}\b", path.read_text())
        }
        assert set(part.files()) == marked
