"""What a worker gives up. Each wall is looked at from inside a process that has put it up."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

INSIDE = """
import json, os, resource, socket, threading, time
from pathlib import Path
from kernwright.judge.confine import confine, die_with
dies = die_with(os.getppid())
threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
last = sorted(os.sched_getaffinity(0))[-1]
isolation = confine(dies, last)
status = Path("/proc/self/status").read_text()
print(json.dumps({
    "isolation": isolation.as_message(),
    "no_new_privs": "NoNewPrivs:\\t1" in status,
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "processors": [sorted(os.sched_getaffinity(int(t.name))) for t in Path("/proc/self/task").iterdir()],
    "last": last,
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "files": resource.getrlimit(resource.RLIMIT_FSIZE),
    "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE),
}))
"""


@pytest.fixture(scope="module")
def inside() -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", INSIDE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_what_is_claimed_is_in_force(inside: dict[str, object]) -> None:
    isolation = inside["isolation"]
    assert isinstance(isolation, dict)
    assert isolation["no_new_privileges"] is inside["no_new_privs"] is True
    assert isolation["dies_with_judge"] is True
    if isolation["network"] == "none":
        assert inside["interfaces"] == ["lo"]
    else:
        assert "shared" in isolation["network"]


def test_every_thread_is_pinned(inside: dict[str, object]) -> None:
    processors = inside["processors"]
    assert isinstance(processors, list)
    assert len(processors) == 2
    assert all(own == [inside["last"]] for own in processors)


def test_limits_are_set(inside: dict[str, object]) -> None:
    assert inside["core"] == [0, 0]
    assert inside["files"] == [2 * 2**30] * 2
    assert inside["descriptors"] == [1024, 1024]


def test_a_worker_dies_with_its_judge() -> None:
    """The judge is killed, the worker's end of a pipe closes: nothing is left running."""
    judge = """
import os, subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", '''
import os, sys, time
from kernwright.judge.confine import die_with
die_with(int(sys.argv[1]))
print("alive", flush=True)
time.sleep(60)
''', str(os.getpid())])
worker.wait()
"""
    process = subprocess.Popen([sys.executable, "-c", judge], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"alive\n"
    process.kill()
    process.wait()
    assert process.stdout.read() == b""  # end of file: the worker, which shares the pipe, is gone too
    process.stdout.close()


def test_an_orphan_gives_up_at_once() -> None:
    code = "from kernwright.judge.confine import die_with; die_with(1); print('went on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_the_seed_leaves_the_command_line_and_memory_closes() -> None:
    code = """
import ctypes, os, sys
from pathlib import Path
from kernwright.judge.confine import hide_judge
said = hide_judge()
line = Path("/proc/self/cmdline").read_bytes()
print(said, b"12345" in line, ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), sys.argv[1:])
"""
    done = subprocess.run([sys.executable, "-c", code, "--seed", "12345"], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "not dumpable, command line blanked False 0 ['--seed', '12345']"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_without_a_processor_nothing_is_pinned() -> None:
    code = """
import os
from kernwright.judge.confine import confine
print(confine(True, None).processors, len(os.sched_getaffinity(0)) > 1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["any", "True"]
