"""The restrictions of a worker. Each is tested inside a confined process, and again with that restriction left out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.judge.system.landlock import landlock_version
from kernwright.judge.system.sandbox import Sandbox
from kernwright.judge.system.users import why_no_other_user

needs_user = pytest.mark.skipif(why_no_other_user() is not None, reason=str(why_no_other_user()))
needs_landlock = pytest.mark.skipif(landlock_version() < 6, reason=f"landlock {landlock_version()}")

ATTEMPTS = """
import ctypes, errno, fcntl, json, os, resource, signal, socket, subprocess, sys, threading
from pathlib import Path
from kernwright.judge.worker.confine import confine, die_with, hold_processor
from kernwright.judge.system.sandbox import Sandbox

parent, sandbox, places = os.getppid(), Sandbox.from_argument(sys.argv[1]), json.loads(sys.argv[2])
die_with(parent)
isolation = confine(sandbox, parent)
threading.Thread(target=threading.Event().wait, daemon=True).start()
last = max(os.sched_getaffinity(0))
hold_processor(sandbox, last, isolation)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
x86 = os.uname().machine == "x86_64"


def call(number_x86, number_arm, *arguments):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if libc.syscall(ctypes.c_long(number_x86 if x86 else number_arm), *words) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def read_parents_memory():
    buffer = ctypes.create_string_buffer(8)
    span = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    far = (ctypes.c_size_t * 2)(int(sys.argv[3]), 8)
    if libc.process_vm_readv(parent, span, 1, far, 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def clone_into_user_namespace():
    child = libc.syscall(ctypes.c_long(56 if x86 else 220), ctypes.c_long(0x10000000 | 17), None, None, None, None)
    if child == 0:
        os._exit(0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "refused")
    os.waitpid(child, 0)


def connect():
    with socket.socket(socket.AF_INET) as one:
        one.connect(("127.0.0.1", int(sys.argv[4])))


def use_scratch():
    here = Path(sandbox.scratch)
    (here / "one").mkdir()
    (here / "two").mkdir()
    (here / "one" / "file").write_text("x")
    (here / "one" / "file").rename(here / "two" / "file")
    (here / "program").write_text("#!/bin/sh\\necho ran > two/file\\n")
    (here / "program").chmod(0o755)
    subprocess.run([here / "program"], cwd=here, check=True)
    assert (here / "two" / "file").read_text() == "ran\\n"


def use_thread():
    done = []
    thread = threading.Thread(target=done.append, args=(1,))
    thread.start()
    thread.join()
    assert done


attempts = {
    "scratch": use_scratch,
    "thread": use_thread,
    "pair": lambda: socket.socketpair()[0].close(),
    "null": lambda: Path("/dev/null").write_text("x"),
    "system": lambda: next(Path("/usr").iterdir()),
    "internet socket": lambda: socket.socket(socket.AF_INET).close(),
    "local socket": lambda: socket.socket(socket.AF_UNIX).close(),
    "connect": connect,
    "write outside": lambda: Path(places["open"], "mine").write_text("x"),
    "write /tmp": lambda: Path(places["tmp"]).write_text("x"),
    "write shared memory": lambda: Path("/dev/shm/kernwright-test").write_text("x"),
    "write package": lambda: Path(places["package"], "planted.py").write_text("x"),
    "read outside": lambda: Path(places["secret"]).read_text(),
    "list other scratch": lambda: list(Path(places["other"]).iterdir()),
    "read other scratch": lambda: Path(places["other"], "file").read_text(),
    "signal judge": lambda: os.kill(parent, signal.SIGURG),
    "judge's memory file": lambda: open(f"/proc/{parent}/mem").close(),
    "judge's environment": lambda: Path(f"/proc/{parent}/environ").read_text(),
    "judge's descriptors": lambda: os.readlink(f"/proc/{parent}/fd/0"),
    "judge's memory": read_parents_memory,
    "ptrace": lambda: call(101, 117, 0x4206, parent, 0, 0),
    "renice judge": lambda: os.setpriority(os.PRIO_PROCESS, parent, 1),
    "limit judge": lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE),
    "own limit": lambda: resource.prlimit(0, resource.RLIMIT_NOFILE),
    "affinity": lambda: os.sched_setaffinity(0, {last}),
    "user namespace": lambda: call(272, 97, 0x10000000),
    "clone into user namespace": clone_into_user_namespace,
    "io_uring": lambda: call(425, 425, 1, ctypes.create_string_buffer(120)),
    "set clock": lambda: call(227, 112, 0, ctypes.create_string_buffer(16)),
    "timer": lambda: call(222, 107, 1, None, ctypes.create_string_buffer(8)),
    "signal for a descriptor": lambda: fcntl.fcntl(0, 10, signal.SIGCONT),
    "outlive the judge": lambda: call(157, 167, 1, 0, 0, 0, 0),
    "become root": lambda: os.setuid(0) if os.getuid() else os.setgroups([7]),
}
number = ctypes.c_int()
libc.prctl(2, ctypes.byref(number), 0, 0, 0)
said = {"status": Path("/proc/self/status").read_text(), "dies with": number.value}
said["dumpable"] = libc.prctl(3, 0, 0, 0, 0)
for name, attempt in attempts.items():
    try:
        attempt()
        said[name] = "done"
    except OSError as error:
        said[name] = errno.errorcode.get(error.errno, str(error))
said["limits"] = {n: resource.getrlimit(getattr(resource, "RLIMIT_" + n)) for n in ("CORE", "FSIZE", "NOFILE", "NPROC")}
said["last"] = last
said["processors"] = [sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
said["isolation"] = vars(isolation)
print(json.dumps(said))
"""
INSIDE = {"scratch", "thread", "pair", "null", "system", "own limit"}
OUTSIDE = {
    "internet socket", "local socket", "connect", "write outside", "write /tmp", "write shared memory",
    "write package", "read outside", "list other scratch", "read other scratch", "signal judge", "judge's memory file",
    "judge's environment", "judge's descriptors", "judge's memory", "ptrace", "renice judge", "limit judge", "affinity",
    "user namespace", "clone into user namespace", "io_uring", "set clock", "become root",
    "timer", "signal for a descriptor", "outlive the judge",
}  # fmt: skip


@pytest.fixture(scope="module")
def attempt(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Run every attempt under all restrictions except the given ones, once for each set of restrictions."""
    kept: dict[tuple[str, ...], dict[str, Any]] = {}

    def run(*off: str) -> dict[str, Any]:
        if off not in kept:
            kept[off] = _attempt(tmp_path_factory.mktemp("confined"), dict.fromkeys(off, "a test"))
        return kept[off]

    return run


def _attempt(folder: Path, off: dict[str, str]) -> dict[str, Any]:
    import ctypes
    import socket

    folder.chmod(0o755)
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)  # so that the file's mode is not what keeps a worker out
    (folder / "secret").write_text("expected values")
    other = Sandbox.around(folder / "other", off=off)
    (folder / "other" / "file").write_text("theirs")
    sandbox = Sandbox.around(folder / "scratch", off=off)
    assert sandbox.user is None or sandbox.user != other.user
    package = Path(__file__).parents[3] / "src" / "kernwright"
    places = {
        "open": folder / "open", "secret": folder / "secret", "other": folder / "other", "package": package,
        "tmp": f"/tmp/kernwright-test-{os.getpid()}",
    }  # fmt: skip
    memory = ctypes.create_string_buffer(8)
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = subprocess.run(
            [
                sys.executable, "-c", ATTEMPTS, sandbox.as_argument(),
                json.dumps({k: str(v) for k, v in places.items()}),
                str(ctypes.addressof(memory)), str(server.getsockname()[1]),
            ],
            capture_output=True, text=True, check=False, cwd=folder / "scratch",
        )  # fmt: skip
    for left in (Path(places["tmp"]), Path("/dev/shm/kernwright-test"), package / "planted.py"):
        left.unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def succeeded(said: dict[str, Any], among: set[str]) -> set[str]:
    return {name for name in among if said[name] == "done"}


def missing(said: dict[str, Any]) -> str:
    return "; ".join(said["isolation"]["missing"])


@needs_user
@needs_landlock
def test_behind_all_walls_only_what_is_inside_works(attempt: Callable[..., dict[str, Any]]) -> None:
    said = attempt()
    assert succeeded(said, INSIDE | OUTSIDE) == INSIDE
    assert said["isolation"]["missing"] == []
    assert said["isolation"]["network"].startswith("none")


@needs_landlock
def test_landlock_and_seccomp_hold_without_another_user(attempt: Callable[..., dict[str, Any]]) -> None:
    said = attempt("user", "network")
    assert succeeded(said, INSIDE | OUTSIDE) == INSIDE
    assert "a user of its own: a test" in missing(said)
    assert said["isolation"]["network"] == "none (no sockets, no TCP)"


@needs_user
def test_another_user_and_seccomp_hold_without_landlock(attempt: Callable[..., dict[str, Any]]) -> None:
    said = attempt("landlock")
    # What every user of the machine may do. A folder that is closed to others still hides its contents.
    everybodys = {"write outside", "write /tmp", "write shared memory", "read outside"}
    assert succeeded(said, OUTSIDE) <= everybodys
    assert succeeded(said, INSIDE) == INSIDE
    assert "landlock: a test" in missing(said)


@needs_user
@needs_landlock
def test_another_user_and_landlock_hold_without_seccomp(attempt: Callable[..., dict[str, Any]]) -> None:
    said = attempt("seccomp")
    harmless = {"internet socket", "local socket", "io_uring", "user namespace", "clone into user namespace"}
    harmless |= {"affinity", "timer", "signal for a descriptor", "outlive the judge"}  # the judge checks this itself
    assert succeeded(said, OUTSIDE) <= harmless
    assert "connect" not in succeeded(said, OUTSIDE)
    assert "seccomp: a test" in missing(said)


def test_with_every_wall_off_the_attempts_are_real_ones(attempt: Callable[..., dict[str, Any]]) -> None:
    """An attempt that is impossible anyway would prove nothing in the tests above."""
    said = attempt("user", "network", "landlock", "seccomp", "processes")
    done = succeeded(said, OUTSIDE)
    assert done >= {
        "internet socket", "local socket", "connect", "write outside", "write /tmp", "read outside",
        "list other scratch", "read other scratch", "signal judge", "affinity",
    }  # fmt: skip
    assert len(said["isolation"]["missing"]) >= 5
    assert (said["isolation"]["network"], said["isolation"]["system_calls"]) == ("shared", "all")
    assert said["isolation"]["file_system"] == "shared with the judge"


@pytest.mark.parametrize("off", [(), ("user", "network"), ("landlock",), ("seccomp",)])
def test_reported_restrictions_are_in_force(attempt: Callable[..., dict[str, Any]], off: tuple[str, ...]) -> None:
    said = attempt(*off)
    status = dict(line.split(":\t", 1) for line in said["status"].splitlines() if ":\t" in line)
    isolation = said["isolation"]
    assert isolation["dies_with_judge"] is True and said["dies with"] == 9
    assert isolation["no_new_privileges"] is True and status["NoNewPrivs"] == "1"
    assert isolation["capabilities"] == "none"
    assert all(int(status[name], 16) == 0 for name in ("CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb"))
    assert said["dumpable"] == 1, "the judge reads outputs from its memory"
    assert status["Seccomp"] == ("0" if "seccomp" in missing(said) else "2")
    users = set(status["Uid"].split())
    if "used by no other process" in isolation["user"]:
        assert users.isdisjoint({str(os.getuid())}) and status["Groups"].strip() == ""
        assert users == set(status["Gid"].split())
    else:
        assert users == {str(os.getuid())} and "a user of its own" in missing(said)
    if isolation["processes"] == "unlimited":
        assert "a limit on processes" in missing(said)
    else:
        assert said["limits"]["NPROC"][0] == said["limits"]["NPROC"][1] >= 256


def test_limits_are_set(attempt: Callable[..., dict[str, Any]]) -> None:
    limits = attempt()["limits"]
    assert limits["CORE"] == [0, 0]
    assert limits["FSIZE"] == [2 * 2**30] * 2
    assert limits["NOFILE"] == [1024, 1024]


@pytest.mark.parametrize("off", [(), ("user", "network"), ("landlock",), ("seccomp",)])
def test_every_thread_is_pinned(attempt: Callable[..., dict[str, Any]], off: tuple[str, ...]) -> None:
    said = attempt(*off)
    assert len(said["processors"]) >= 2
    assert all(own == [said["last"]] for own in said["processors"])
    assert said["isolation"]["processors"] == f"pinned to {said['last']}"


def test_a_worker_dies_with_its_judge(tmp_path: Path) -> None:
    """If the judge is killed, the worker's end of the pipe closes and no process is left, whatever its user."""
    judge = """
import os, subprocess, sys
from pathlib import Path
from kernwright.judge.system.sandbox import Sandbox
sandbox = Sandbox.around(Path(sys.argv[1]))
worker = subprocess.Popen([sys.executable, "-c", '''
import sys, time
from kernwright.judge.worker.confine import confine
from kernwright.judge.system.sandbox import Sandbox
confine(Sandbox.from_argument(sys.argv[2]), int(sys.argv[1]))
print("alive", flush=True)
time.sleep(60)
''', str(os.getpid()), sandbox.as_argument()])
worker.wait()
"""
    process = subprocess.Popen([sys.executable, "-c", judge, str(tmp_path / "scratch")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"alive\n"
    process.kill()
    process.wait()
    assert process.stdout.read() == b""  # End of file: the worker, which shares the pipe, is gone too.
    process.stdout.close()


def test_an_orphan_gives_up_at_once() -> None:
    code = "from kernwright.judge.worker.confine import die_with; die_with(1); print('went on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_the_seed_leaves_the_command_line_and_memory_closes() -> None:
    code = """
import ctypes, os, sys
from pathlib import Path
from kernwright.judge.system.concealment import hide_judge
said = hide_judge()
line = Path("/proc/self/cmdline").read_bytes()
print(said, b"12345" in line, ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), sys.argv[1:])
"""
    done = subprocess.run([sys.executable, "-c", code, "--seed", "12345"], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "not dumpable, command line blanked False 0 ['--seed', '12345']"
