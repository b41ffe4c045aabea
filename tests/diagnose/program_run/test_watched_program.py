"""Real programs under the gate: their output passes, a sign ends them with all their children, nothing else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernwright.core.errors import EnvironmentProblem
from kernwright.diagnose.program_run import watched_program
from kernwright.diagnose.program_run.process_tree import running_descendants
from kernwright.diagnose.program_run.watched_program import run_watched

LINE, LINES = "denoising the latents with the native backend 5/50\r", 20_000
NOISE = LINE * LINES


def run(source: str, **variables: str) -> watched_program.ProgramEnding:
    """Run a Python program, and check that nothing of it is left."""
    before = set(running_descendants(os.getpid()))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    ending = run_watched([sys.executable, "-c", source], os.environ | variables)
    assert set(running_descendants(os.getpid())) == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
    return ending


def test_output_and_status_pass_as_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    ending = run(f"import sys; sys.stdout.write({LINE!r} * {LINES}); sys.stderr.write('warned'); sys.exit(7)")
    held = capfd.readouterr()
    assert (ending.status, ending.sign, ending.left_running) == (7, "", 0)
    assert held.out == NOISE and held.err == "warned"
    assert run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").status == -signal.SIGSEGV


def test_a_late_sign_in_pieces_among_megabytes_ends_the_program(capfd: pytest.CaptureFixture[str]) -> None:
    sign = "WARNING \x1b[33mFalling \x1b[1mback to\x1b[0m diffusers backend"  # no line's end: the program hangs
    ending = run(
        f"""
import sys, time
for piece in [{LINE!r} * {LINES}, {LINE!r} * {LINES}, *{sign!r}]:
    sys.stderr.write(piece)
    sys.stderr.flush()
time.sleep(300)
"""
    )
    assert ending.sign == "WARNING Falling back to diffusers backend"
    assert capfd.readouterr().err == NOISE * 2 + sign


def test_a_sign_ends_children_that_left_the_group_or_refuse_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_program, "GRACE_S", 0.3)
    orphan = tmp_path / "orphan"
    ending = run(
        f"""
import os, signal, subprocess, sys, time
subprocess.run(["sh", "-c", "setsid sleep 300 & echo $! > {orphan}"])  # in a session of its own
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("Using diffusers backend", flush=True)
time.sleep(300)
"""
    )
    assert ending.sign == "Using diffusers backend" and ending.status == -signal.SIGTERM
    assert not Path("/proc", orphan.read_text().strip()).exists()


def test_children_that_outlive_the_program_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_program, "LINGER_S", 0.1)
    ending = run("import subprocess; subprocess.Popen(['sleep', '300']); subprocess.Popen(['sleep', '0'])")
    assert (ending.status, ending.left_running) == (0, 1)


def test_a_sign_that_only_a_leftover_child_prints_counts(capfd: pytest.CaptureFixture[str]) -> None:
    ending = run("import subprocess; subprocess.Popen(['sh', '-c', 'sleep 0.2; echo Loaded diffusers pipeline'])")
    assert ending.sign == "Loaded diffusers pipeline" and "Loaded" in capfd.readouterr().out


def test_output_between_the_last_wait_and_the_end_of_the_last_process_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mark, asked = tmp_path / "said", iter(range(1000))

    def look_late(root: int, spared: frozenset[int] = frozenset()) -> list[int]:
        if next(asked) >= 2:  # the start and the first look see the child; before the next one, it writes and ends
            while not mark.exists():
                time.sleep(0.01)
            time.sleep(0.2)
        return running_descendants(root, spared)

    with monkeypatch.context() as slowly:
        slowly.setattr(watched_program, "running_descendants", look_late)
        child = f"sleep 0.6; echo Loaded diffusers pipeline; touch {mark}"
        ending = run(f"import subprocess; subprocess.Popen(['sh', '-c', {child!r}])")
    assert ending.sign == "Loaded diffusers pipeline" and "Loaded" in capfd.readouterr().out


def test_a_program_that_does_not_exist_is_one_error() -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with pytest.raises(EnvironmentProblem, match="no-such-program"):
        run_watched(["no-such-program"], os.environ)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program_with_its_children(tmp_path: Path, number: signal.Signals) -> None:
    marks = tmp_path / "pids"
    source = f"""
import os, subprocess, time
child = subprocess.Popen(["setsid", "sleep", "300"])
open({str(marks)!r} + ".part", "w").write(f"{{os.getpid()}} {{child.pid}}")
os.rename({str(marks)!r} + ".part", {str(marks)!r})
time.sleep(300)
"""
    program = f"""
import os, sys
from kernwright.diagnose.program_run.watched_program import run_watched
ending = run_watched([sys.executable, "-c", {source!r}], os.environ)
print(ending.interrupted, ending.status)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        while not marks.exists():
            time.sleep(0.02)
        process.send_signal(number)
        said, _ = process.communicate()
    interrupted, status = map(int, said.split())
    assert interrupted == number and status in (-number, 1)  # Python ends with 1 or SIGINT after Ctrl-C
    assert not [pid for pid in marks.read_text().split() if Path("/proc", pid).exists()]
