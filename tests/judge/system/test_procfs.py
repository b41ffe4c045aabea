"""Reports of the kernel about processes, including those that try to hide."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernwright.judge.system import procfs
from kernwright.judge.system.users import owners_of

EXIT = {"x86_64": 60, "aarch64": 93}.get(platform.machine())
HEADLESS = f"""
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall({EXIT}, 0)  # ends this thread alone
"""


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(EXIT is None, reason="the number of exit is not known here")
def test_a_process_whose_first_thread_has_ended_is_alive() -> None:
    process = subprocess.Popen([sys.executable, "-c", HEADLESS])
    try:
        end = time.monotonic() + 60
        while state_of(process.pid) != "Z" and time.monotonic() < end:
            time.sleep(0.02)
        assert state_of(process.pid) == "Z", "by its own account it is dead"
        assert procfs.is_alive(process.pid)
        assert not procfs.stands_still(process.pid)
        assert os.getuid() in owners_of(process.pid, living=True)
        process.send_signal(signal.SIGSTOP)
        end = time.monotonic() + 60
        while not procfs.stands_still(process.pid) and time.monotonic() < end:
            time.sleep(0.02)
        assert procfs.stands_still(process.pid) and procfs.is_alive(process.pid)
    finally:
        process.kill()
        process.wait()


def test_a_zombie_is_dead_and_a_process_that_is_gone_too() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    end = time.monotonic() + 60
    while procfs.is_alive(process.pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert Path(f"/proc/{process.pid}").exists()
    assert not procfs.is_alive(process.pid) and procfs.stands_still(process.pid)
    assert owners_of(process.pid, living=True) == set()
    process.wait()
    assert not procfs.is_alive(process.pid) and procfs.stands_still(process.pid)


def test_a_thread_that_runs_is_seen_to_run() -> None:
    before, _ = procfs.scheduled_ns(os.getpid())
    end = time.process_time() + 0.05
    while time.process_time() < end:
        ctypes.c_int(0)
    after, _ = procfs.scheduled_ns(os.getpid())
    assert after - before > 20e6
    assert procfs.scheduled_ns(2**22 + 1) == (0, 0)
