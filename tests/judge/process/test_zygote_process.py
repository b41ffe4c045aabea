"""A forked process must be able to use the GPU, so the zygote does not import modules that start the driver."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from kernwright.judge.process import zygote_process
from kernwright.judge.process.environment import zygote_environment
from kernwright.judge.process.zygote_process import zygote_for
from kernwright.judge.protocol.orders import WorkerOrders

DRIVER = """
static int started;
int cuInit(unsigned flags) { started = 1; return 0; }
int cuDeviceGetCount(int* count) { return started ? 0 : 3; }
"""
STARTS_IT = "import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n"


def test_a_module_that_starts_the_driver_is_not_in_the_zygote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(
        [compiler, "-shared", "-fPIC", tmp_path / "driver.c", "-o", tmp_path / "libcuda.so.1"], check=True
    )  # fmt: skip
    (tmp_path / "starts_it.py").write_text(STARTS_IT)
    (tmp_path / "harmless.py").write_text("")
    monkeypatch.setattr(zygote_process, "_spoiling", set())
    own = zygote_environment(1)
    environment = own | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": f"{own['PYTHONPATH']}:{tmp_path}"}
    zygote = zygote_for(1, environment, ["harmless", "starts_it"])
    try:
        assert zygote.process.poll() is None
        assert zygote_process._spoiling == {"starts_it"}
        assert zygote_for(1, environment, ["harmless", "starts_it"]) is zygote, "it is remembered"
    finally:
        zygote.end()


def test_an_interrupted_fork_is_not_answered_by_an_old_worker(tmp_path: Path) -> None:
    """Ctrl-C comes before the answer. The next worker must not get the number of the first one."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    environment, orders = zygote_environment(1), WorkerOrders(threads=1, sandbox="{}", device="cpu")
    zygote = zygote_for(1, environment)
    ours, theirs = socket.socketpair()
    before = signal.signal(signal.SIGALRM, interrupt)
    os.kill(zygote.process.pid, signal.SIGSTOP)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with ours, theirs, pytest.raises(KeyboardInterrupt):
            zygote.fork(theirs.fileno(), theirs.fileno(), environment, tmp_path, orders)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    another = zygote_for(1, environment)
    assert another is not zygote and zygote.process.poll() is not None and another.is_usable
    another.end()
