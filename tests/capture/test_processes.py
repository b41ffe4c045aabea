"""Programs of several processes: each process records its own calls, and none is lost or counted twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.capture.capture import read_capture

Capturing = Callable[..., Any]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_every_kind(capture: Capturing, method: str) -> None:
    run = capture(
        "import multiprocessing\nfrom library import scale\n"
        "if __name__ == '__main__':\n"
        "    scale(0)\n    scale(100)\n"
        f"    with multiprocessing.get_context('{method}').Pool(2, maxtasksperchild=2) as pool:\n"
        "        print(pool.map(scale, [1, 2, 1, 2, 1, 2], chunksize=1))\n"
        "    scale(0)\n",
        "library:scale",
    )
    assert run.done.stdout == "[1, 2, 1, 2, 1, 2]\n"
    assert run.counts() == {f"scale({n}, 2.0, None)": count for n, count in ((0, 2), (1, 3), (100, 1), (2, 3))}
    assert run.capture.header.processes >= 3


def test_a_plain_child_and_a_fork_that_never_says_goodbye(capture: Capturing) -> None:
    run = capture(
        "import os, subprocess, sys\nfrom library import scale\nscale(1)\n"
        "if len(sys.argv) > 1: sys.exit()\n"
        "for _ in range(3):\n    if os.fork() == 0:\n        scale(1); scale(2); os._exit(0)\n    os.wait()\n"
        "subprocess.run([sys.executable, __file__, 'child'], check=True)\n",
        "library:scale",
    )
    assert run.counts() == {"scale(1, 2.0, None)": 5, "scale(2, 2.0, None)": 3}


def test_forks_while_other_threads_record(capture: Capturing) -> None:
    """A child must not inherit a lock that another thread of its parent held."""
    run = capture(
        "import os, threading\nfrom library import scale\n"
        "done = threading.Event()\n"
        "def work():\n    while not done.is_set(): scale('thread')\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "for t in threads: t.start()\n"
        "for _ in range(20):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n        scale('child'); os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "done.set()\n",
        "library:scale",
    )
    assert run.done.returncode == 0, run.done.stderr
    assert run.counts()["scale('child', 2.0, None)"] == 20


def test_equal_programs_make_equal_captures(capture: Capturing) -> None:
    script = (
        "import multiprocessing\nfrom library import scale\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('fork').Pool(3) as pool: pool.map(scale, range(30))\n"
    )
    calls = [capture(script, "library:scale").capture.calls for _ in range(2)]
    assert len(calls[0]) == 30
    assert calls[0] == calls[1]


def test_a_capture_that_is_killed_itself_can_be_recovered(
    capture_command: Capturing, program: Path, environment: dict[str, str]
) -> None:
    (program / "script.py").write_text(
        "import os, time\nfrom library import scale\nscale(1); scale(1)\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    )
    file = program / "capture.jsonl"
    command = capture_command(file, ["library:scale"], [sys.executable, "script.py"])
    with subprocess.Popen(command, cwd=program, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        os.kill(child, signal.SIGKILL)
    assert not file.exists()
    (folder,) = program.glob("capture.jsonl.parts-*")
    (lines,) = folder.glob("*.lines")
    lines.write_bytes(lines.read_bytes() + b'{"slot": 2, "call": "libr')  # left by a kill during a write
    done = subprocess.run(
        [sys.executable, "-m", "kernwright.cli.main", "capture", "--recover", str(folder), "--out", str(file)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [call.count for call in read_capture(file).calls] == [2]
