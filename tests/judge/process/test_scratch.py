"""Scratch folders are removed by their judge, or by the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.process.scratch import PREFIX, scratch_folder
from kernwright.judge.system.users import FIRST_USER, USERS_PER_JUDGE, why_no_other_user


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_scratch_folder_goes_with_its_judge(own_tmp: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == own_tmp
        assert folder.stat().st_mode & 0o066 == 0
        (folder / "build" / "deep").mkdir(parents=True)
        (folder / "build" / "deep" / "file").write_text("x")
    assert not folder.exists()
    with pytest.raises(KeyboardInterrupt), scratch_folder() as interrupted:
        raise KeyboardInterrupt
    assert not interrupted.exists()


def test_folders_inside_folders_keep_no_judge_from_clearing_up(own_tmp: Path) -> None:
    """The folders are nested more deeply than Python's functions walk, and would stop the next judge too."""
    with scratch_folder() as folder:
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(folder)
            for _ in range(1500):
                Path("d").mkdir()
                os.chdir("d")
            Path("file").write_text("x")
            Path("link").symlink_to(own_tmp)
        finally:
            os.fchdir(here)
            os.close(here)
    left = folder.exists()
    subprocess.run(["rm", "-rf", str(folder)], check=True)  # Otherwise pytest would fail to remove them.
    assert not left
    assert own_tmp.exists()


def test_two_judges_have_two_folders() -> None:
    with scratch_folder() as one, scratch_folder() as two:
        assert one != two
        assert one.is_dir() and two.is_dir()


def test_the_folders_of_dead_judges_are_swept_and_no_others(own_tmp: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = own_tmp / f"{PREFIX}{gone.pid}-abc"
    alive = own_tmp / f"{PREFIX}{os.getpid()}-abc"
    strange = own_tmp / f"{PREFIX}notes"
    for folder in (dead, alive, strange):
        folder.mkdir()
        (folder / "file").write_text("x")
    with scratch_folder():
        assert not dead.exists()
        assert alive.exists()
        assert strange.exists()


def test_a_missing_place_for_a_folder_is_reported(own_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(own_tmp / "missing"))
    with pytest.raises(EnvironmentProblem, match="TMPDIR"), scratch_folder():
        pass


@pytest.mark.skipif(why_no_other_user() is not None, reason=str(why_no_other_user()))
def test_processes_that_workers_of_a_dead_judge_left_are_ended(own_tmp: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    user = FIRST_USER + gone.pid * USERS_PER_JUDGE
    scratch = own_tmp / f"{PREFIX}{gone.pid}-abc" / "candidate" / "scratch"
    scratch.mkdir(parents=True)
    os.chown(scratch, user, user)
    with (
        subprocess.Popen(["sleep", "60"], user=user, group=user, extra_groups=(), cwd="/") as left,
        subprocess.Popen(["sleep", "60"]) as somebodys,
    ):
        try:
            with scratch_folder():
                assert left.wait(timeout=60) == -9
                assert somebodys.poll() is None
        finally:
            left.kill()
            somebodys.kill()
    assert not scratch.exists()
