"""One judge at a time: the lock names its holder and is released when the holder dies."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.device.lock import device_lock

HOLDER = """
import sys, time
from kernwright.judge.device.lock import device_lock
with device_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNWRIGHT_LOCKS", str(tmp_path))
    return tmp_path


def hold(device: str) -> subprocess.Popen[str]:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, device], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_second_judge_is_refused_and_told_who_holds_the_device() -> None:
    holder = hold("cpu")
    try:
        with (
            pytest.raises(EnvironmentProblem, match=rf"process {holder.pid}\) is using cpu(?s:.*)--wait"),
            device_lock("cpu"),
        ):
            pass
        with device_lock("cuda:1"):  # another device has another lock
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()  # type: ignore[union-attr]


def test_processes_that_time_nothing_share_the_lock_but_not_with_a_judge() -> None:
    with (
        device_lock("cpu", shared=True),
        device_lock("cpu", shared=True),
        pytest.raises(EnvironmentProblem, match="is using cpu"),
        device_lock("cpu"),
    ):
        pass
    with device_lock("cpu"), pytest.raises(EnvironmentProblem, match="is using cpu"), device_lock("cpu", shared=True):
        pass


def test_a_killed_holder_leaves_the_device_free(own_locks: Path) -> None:
    holder = hold("cpu")
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()  # type: ignore[union-attr]
    with device_lock("cpu"):
        (lock,) = own_locks.iterdir()
        assert lock.read_text() == f"{os.getpid()}\n", "the lock is ours now, not the dead holder's"


def test_waiting_outlasts_a_short_holder(own_locks: Path) -> None:
    holder = hold("cpu")
    os.kill(holder.pid, signal.SIGTERM)
    with device_lock("cpu", wait_s=20):
        (lock,) = own_locks.iterdir()
        assert lock.read_text() == f"{os.getpid()}\n"
    holder.wait()
    holder.stdout.close()  # type: ignore[union-attr]


def test_the_lock_is_released_by_an_error_and_can_be_taken_again(own_locks: Path) -> None:
    with pytest.raises(RuntimeError), device_lock("cpu"):
        raise RuntimeError
    with device_lock("cpu"):
        (lock,) = own_locks.iterdir()
        assert lock.read_text() == f"{os.getpid()}\n"


def test_users_share_the_lock_file(own_locks: Path) -> None:
    """The first judge must not lock out other users: a private file mode would refuse them instead of making them
    wait."""
    before = os.umask(0o022)
    try:
        with device_lock("cpu"):
            (lock,) = own_locks.iterdir()
            assert stat.S_IMODE(lock.stat().st_mode) == 0o666
    finally:
        os.umask(before)


def test_a_lock_that_cannot_be_opened_is_named(own_locks: Path) -> None:
    (own_locks / "kernwright-cpu.lock").mkdir()
    with pytest.raises(EnvironmentProblem, match=r"kernwright-cpu\.lock(?s:.*)KERNWRIGHT_LOCKS"), device_lock("cpu"):
        pass
