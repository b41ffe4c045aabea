"""Orders for a worker's sandbox: which folders are open, for which user, and what a judge without root can restrict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.core.errors import KernwrightError
from kernwright.judge.system.landlock import LandlockUnavailable, landlock_version, rights_of
from kernwright.judge.system.linux import held_capabilities
from kernwright.judge.system.sandbox import OFF_VARIABLE, Sandbox, disabled_walls, import_folders
from kernwright.judge.system.users import barred_folders, is_worker_user, outermost, unreadable, why_no_other_user

# Differs from the users of other test runs, whose processes would otherwise be counted as this one's.
ORDINARY = 62_000 + os.getpid() % 3_000
HONEST = "def axpy(x, w, *, alpha=2.0):\n    return alpha * x + w\n"
FINE = {"faster", "same", "slower", "inconclusive"}
is_root = pytest.mark.skipif(why_no_other_user() is not None, reason=str(why_no_other_user()))
can_mount = pytest.mark.skipif("SYS_ADMIN" not in held_capabilities(), reason="no right to mount")


def test_orders_arrive_as_they_were_given(tmp_path: Path) -> None:
    sandbox = Sandbox.around(tmp_path / "scratch", [tmp_path], {"network": "a test"}, for_gpu=True)
    assert Sandbox.from_argument(sandbox.as_argument()) == sandbox
    assert json.loads(sandbox.as_argument())["off"] == {"network": "a test"}


def test_only_what_a_side_needs_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", *sys.path])  # as `python -m` and `python -c` do
    opened = Sandbox.around(tmp_path / "scratch").opened()
    assert opened.writes == (str(tmp_path / "scratch"),)
    for folder in ("/", "/tmp", "/home", "/etc", "/dev", "/var", "/root", str(tmp_path), ""):
        assert folder not in (*opened.reads, *opened.devices)
    assert str(tmp_path) not in import_folders() and "" not in import_folders()
    assert str(Path(__file__).parents[3] / "src") in opened.reads
    assert not any(Path(path).is_block_device() for path in opened.devices)


def test_requested_folders_stay_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert str(tmp_path) in import_folders()


def test_walls_are_switched_off_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OFF_VARIABLE, "user, landlock")
    assert disabled_walls() == dict.fromkeys(["user", "landlock"], f"switched off by {OFF_VARIABLE}")
    monkeypatch.setenv(OFF_VARIABLE, "fence")
    with pytest.raises(KernwrightError, match="no wall is called 'fence'"):
        disabled_walls()


def test_the_rights_of_each_version_of_landlock() -> None:
    assert [rights_of(version) for version in range(1, 8)] == [
        0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF, 0xFFFF, 0xFFFF,
    ]  # fmt: skip
    assert issubclass(LandlockUnavailable, Exception)


def test_barred_folders_are_the_outermost(tmp_path: Path) -> None:
    deep = tmp_path / "home" / "closed" / "deeper" / "file"
    deep.parent.mkdir(parents=True)
    deep.write_text("x")
    for folder in (deep.parent, deep.parent.parent):
        folder.chmod(0o700)
    above = barred_folders([tmp_path / "home" / "x"])  # the tests' own folders may be closed to other users
    assert barred_folders([deep]) - above == {deep.parent, deep.parent.parent}
    assert outermost([deep.parent, deep.parent.parent, tmp_path / "home" / "other"]) == [
        str(deep.parent.parent), str(tmp_path / "home" / "other"),
    ]  # fmt: skip
    assert unreadable([deep]) is None
    deep.chmod(0o600)
    assert unreadable([deep]) == deep


@is_root
def test_what_others_cannot_read_keeps_the_judges_user(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir(mode=0o700)
    sandbox = Sandbox.around(tmp_path / "scratch", [tmp_path / "sources"])
    assert sandbox.user is None
    assert "sources is not readable by others" in sandbox.why_same_user
    assert (tmp_path / "scratch").stat().st_uid == 0


@is_root
def test_worker_users_belong_to_no_one_else(tmp_path: Path) -> None:
    users = {Sandbox.around(tmp_path / str(number)).user for number in range(5)}
    assert len(users) == 5
    assert all(user is not None and is_worker_user(user) for user in users)
    assert not is_worker_user(1000) and not is_worker_user(65534)


BOMB = """
import os, time


def forever():
    os.setsid()
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)


def axpy(x, w, *, alpha=2.0):
    while True:
        if os.fork() == 0:
            forever()
"""
AS_USER = """
import os, sys
from pathlib import Path
from kernwright.judge.system.linux import PR_CAPBSET_DROP, prctl
from kernwright.judge.system.namespaces import make_passable
from kernwright.judge.system.sandbox import python_folders
from kernwright.judge.system.users import barred_folders, outermost, unreadable
user, folder = int(sys.argv[1]), sys.argv[2]
kept = [str(way) for path in python_folders() if not unreadable([path]) for way in (path, path.resolve())]
make_passable(outermost(barred_folders(map(Path, [*kept, folder]))), kept, [folder])
if user:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
else:
    for capability in (19, 21, 23):  # SYS_PTRACE, SYS_ADMIN, SYS_NICE, which a container's root does not have
        prctl(PR_CAPBSET_DROP, capability)
os.chdir(folder)
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""


JUDGE_EACH = """
import sys
from kernwright.cli.main import app
for name in sys.argv[1:]:
    words = f"judge tiny --candidate {name} --rows axpy_small --quick --ledger ledger --json {name}.json"
    try:
        app(words.split(), standalone_mode=False)
    except SystemExit:
        pass
"""


@pytest.fixture
def judged_as(tmp_path: Path, tiny_folder: Path, write_candidate: Callable[..., Path]) -> Callable[..., Any]:
    """Judge sources one after the other in a process of that user, with its own home and scratch folders."""
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(["cp", "-r", tiny_folder, home / "tiny"], check=True)

    def run(user: int, *sources: str, off: str = "") -> list[dict[str, Any]]:
        names = [write_candidate(home / f"candidate{number}", own).name for number, own in enumerate(sources)]
        subprocess.run(["chown", "-R", str(user), home], check=True)
        done = subprocess.run(
            [sys.executable, "-c", AS_USER, str(user), home, "-c", JUDGE_EACH, *names],
            capture_output=True, text=True, check=False,
            env={**os.environ, "TMPDIR": str(home), "KERNWRIGHT_LOCKS": str(home), OFF_VARIABLE: off},
        )  # fmt: skip
        verdicts = [home / f"{name}.json" for name in names]
        assert all(path.exists() for path in verdicts), done.stderr
        return [json.loads(path.read_text()) for path in verdicts]

    return run


@is_root
@can_mount
@pytest.mark.slow
@pytest.mark.parametrize("off", ["", "network,landlock,seccomp"])
def test_an_ordinary_user_judges_too(judged_as: Callable[..., Any], off: str) -> None:
    """Without root there is no other user, but the rest of the sandbox holds. The judge still reads its workers'
    memory."""
    sources = (BOMB, HONEST) if off else (HONEST,)  # each other wall also limits a fork bomb
    *bombed, verdict = judged_as(ORDINARY, *sources, off=off)
    assert all(own["verdict"] == "failed" for own in bombed)
    assert verdict["verdict"] in FINE, verdict["reasons"]
    sandbox = verdict["provenance"]["isolation"]["workers"]
    assert sandbox["user"] == f"uid {ORDINARY}, the judge's own"
    assert "256" in sandbox["processes"]
    if not off and landlock_version() >= 6:
        assert sandbox["network"].startswith("none") and sandbox["signals"] == "to itself"


@is_root
@can_mount
@pytest.mark.slow
def test_the_root_of_a_container_judges_too(judged_as: Callable[..., Any]) -> None:
    """Without the right to create namespaces or to read another user's process, workers still have their own user."""
    bombed, verdict = judged_as(0, BOMB, HONEST)
    assert bombed["verdict"] == "failed"
    assert verdict["verdict"] in FINE, verdict["reasons"]
    sandbox = verdict["provenance"]["isolation"]["workers"]
    assert sandbox["user"].endswith("used by no other process") and sandbox["processes"].startswith("256")
    assert any("network namespace" in wall for wall in sandbox["missing"])
