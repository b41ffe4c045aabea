"""How the suite is parted: each test in one process, a failure anywhere is a failure, and a share is a share."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
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
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 2 and "python -m pytest" in done.stderr


def test_shares_are_disjoint_and_make_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    conftest = loaded(SCRIPT.with_name("conftest.py"))
    dropped: list[Any] = []
    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items)))
    shares = []
    for own in (1, 2, 3):
        monkeypatch.setenv(conftest.SHARE_VARIABLE, f"{own}/3")
        items: list[Any] = list("abcdefg")
        conftest.pytest_collection_modifyitems(config, items)
        shares.append(items)
    assert sorted(one for share in shares for one in share) == list("abcdefg") and len(dropped) == 2 * 7
    monkeypatch.setenv(conftest.SHARE_VARIABLE, "4/3")
    with pytest.raises(pytest.UsageError):
        conftest.pytest_collection_modifyitems(config, [])
