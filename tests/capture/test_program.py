"""A captured program keeps its streams, arguments, exit status, signals, descriptors and sitecustomize."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.capture.capture import read_capture
from kernwright.capture.program import program_name

Capturing = Callable[..., Any]

SHOW = """
import os, sys
from library import scale
scale(1)
print(sys.argv, sys.path[0] == os.getcwd() or sys.path[0], sys.stdin.read())
print("to the other stream", file=sys.stderr)
sys.exit(3)
"""


def test_streams_arguments_and_status_are_the_same_as_without(
    capture: Capturing, program: Path, environment: dict[str, str]
) -> None:
    arguments = ["--out", "x y", "--", "--call", "", "-h", "*"]
    run = capture(SHOW, "library:scale", arguments=arguments, input="typed")
    alone = subprocess.run(
        [sys.executable, "script.py", *arguments], cwd=program, env=environment, input="typed",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (run.done.returncode, run.done.stdout) == (alone.returncode, alone.stdout) == (3, alone.stdout)
    assert "typed" in alone.stdout and "'x y', '--', '--call', '', '-h', '*'" in alone.stdout
    assert run.done.stderr.startswith(alone.stderr) and alone.stderr
    ours = run.done.stderr.removeprefix(alone.stderr).splitlines()
    assert ours and all(line.startswith("kernwright: ") for line in ours)
    assert run.counts() == {"scale(1, 2.0, None)": 1}
    assert run.capture.header.program == "script.py"
    assert sorted(path.name for path in program.iterdir() if path.name.startswith("capture")) == ["capture.jsonl"]


OWN = """
import sys, library

class Layer:
    def forward(self, x):
        return gate(x)

def gate(x, factor=2.0):
    return x

if __name__ == "__main__":
    Layer().forward(1)
    print(gate.__name__, sys.gettrace())
"""


@pytest.mark.parametrize("module", ["script.py", "__main__", "script"])
def test_functions_that_the_script_defines(capture: Capturing, module: str) -> None:
    run = capture(OWN, f"{module}:gate", f"{module}:Layer.forward")
    assert (run.done.returncode, run.done.stdout) == (0, "gate None\n")
    assert run.counts() == {"Layer.forward(<__main__.Layer>, 1)": 1, "gate(1, 2.0)": 1}


def test_a_function_that_the_script_defines_twice(capture: Capturing) -> None:
    again = OWN.replace("if __name__", "def gate(x, factor=3.0):\n    return x\n\nif __name__")
    run = capture(again, "script.py:gate")
    assert (run.done.returncode, run.done.stdout) == (0, "gate None\n")
    assert run.counts() == {"gate(1, 3.0)": 1}


def test_a_function_named_by_its_file_is_found_when_the_file_is_imported(capture: Capturing) -> None:
    run = capture("from library import scale\nscale(1)\n", "library.py:scale", "script.py:missing")
    assert run.counts() == {"scale(1, 2.0, None)": 1}
    assert "script.py:missing: the script ended" in run.done.stderr


def test_a_program_that_fails_is_named_and_its_calls_are_kept(capture: Capturing) -> None:
    run = capture("from library import scale\nscale(1)\nimport nothing\n", "library:scale")
    assert run.done.returncode == run.capture.header.ending == 1
    assert run.counts() == {"scale(1, 2.0, None)": 1}
    assert "failed with exit status 1" in run.done.stderr


def test_modules_and_console_scripts(capture: Capturing, program: Path) -> None:
    (program / "package").mkdir()
    (program / "package" / "__main__.py").write_text("import sys\nfrom library import scale\nscale(sys.argv[1])\n")
    script = program / "tool"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom library import scale\nscale(sys.argv[1])\n")
    script.chmod(0o755)
    run = capture("", "library:scale", command=[sys.executable, "-m", "package", "module"])
    assert run.counts() == {"scale('module', 2.0, None)": 1}
    assert run.capture.header.program == "-m package"
    run = capture("", "library:scale", command=["./tool", "tool"])
    assert run.counts() == {"scale('tool', 2.0, None)": 1}
    assert run.capture.header.program == "tool"


@pytest.mark.parametrize("body", ["import os\nprint('own sitecustomize', __name__)\nMARK = 7\n", "raise OSError(1)"])
def test_an_existing_sitecustomize_runs_as_before(
    capture: Capturing, program: Path, environment: dict[str, str], body: str
) -> None:
    (program / "site").mkdir()
    (program / "site" / "sitecustomize.py").write_text(body)
    script = (
        "import sys\nfrom library import scale\nscale(1)\n"
        "print(getattr(sys.modules.get('sitecustomize'), 'MARK', None))\n"
    )
    path = os.pathsep.join(filter(None, [str(program / "site"), environment.get("PYTHONPATH")]))
    run = capture(script, "library:scale", env={"PYTHONPATH": path})
    alone = subprocess.run(
        [sys.executable, "script.py"], cwd=program, env=environment | {"PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.done.stdout.count("own sitecustomize") == alone.stdout.count("own sitecustomize") * 2
    assert run.done.stdout.endswith(alone.stdout)
    assert ("Error in sitecustomize" in run.done.stderr) == ("Error in sitecustomize" in alone.stderr)
    assert sum(run.counts().values()) == 1


def test_a_crash_and_a_kill_leave_what_was_recorded_and_end_the_same(capture: Capturing, program: Path) -> None:
    for ending, status in (
        ("raise RuntimeError('broken')", 1),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os; os._exit(9)", 9),
    ):
        run = capture(f"from library import scale\nfor i in range(50): scale(i % 2)\n{ending}\n", "library:scale")
        assert run.done.returncode == status, ending
        assert run.counts() == {"scale(0, 2.0, None)": 25, "scale(1, 2.0, None)": 25}, ending
        assert not list(program.glob("*.parts-*"))
        run.file.unlink()


def test_a_closed_pipe_leaves_the_capture_and_nothing_else(
    program: Path, environment: dict[str, str], capture_command: Callable[..., list[str]]
) -> None:
    """`2>&1 | head -1` closes the pipe like this. Nothing is recorded either, which the exit status tells."""
    (program / "script.py").write_text("import library\n")
    command = capture_command(program / "capture.jsonl", ["library:scal"], [sys.executable, "script.py"])
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, cwd=program, env=environment, stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 1
    assert (program / "capture.jsonl").is_file() and not list(program.glob("*.parts-*"))


WAITS = """
import signal, sys, time
from library import scale
heard = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda n, _: heard.append(signal.Signals(n).name))
scale(1)
print("ready", flush=True)
while not heard:
    time.sleep(0.01)
time.sleep(0.3)  # were it told twice, it would be within this
print(heard, flush=True)
scale(2)
sys.exit(7)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_kernwright_alone_reaches_the_program(
    capture_command: Capturing, program: Path, environment: dict[str, str], number: signal.Signals
) -> None:
    (program / "script.py").write_text(WAITS)
    file = program / "capture.jsonl"
    command = capture_command(file, ["library:scale"], [sys.executable, "script.py"])
    with subprocess.Popen(command, cwd=program, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == f"['{number.name}']\n"
    assert process.returncode == 7
    assert len(read_capture(file).calls) == 2


def test_ctrl_c_at_a_terminal_is_handled_once(
    capture_command: Capturing, program: Path, environment: dict[str, str]
) -> None:
    (program / "script.py").write_text(WAITS)
    file = program / "capture.jsonl"
    command = capture_command(file, ["library:scale"], [sys.executable, "script.py"])
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(program)
        os.execve(command[0], command, environment)
    attributes = termios.tcgetattr(terminal)
    assert attributes[3] & termios.ISIG
    seen = b""
    sent = False
    while True:
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # The program has ended, so the terminal's other side is closed.
            break
        if b"ready" in seen and not sent:
            os.write(terminal, b"\x03")
            sent = True
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert b"['SIGINT']" in seen
    assert len(read_capture(file).calls) == 2


def test_a_program_that_ends_by_ctrl_c_ends_so(
    capture_command: Capturing, program: Path, environment: dict[str, str]
) -> None:
    (program / "script.py").write_text(
        "import time\nfrom library import scale\nscale(1)\nprint(1, flush=True)\ntime.sleep(60)"
    )
    file = program / "capture.jsonl"
    command = capture_command(file, ["library:scale"], [sys.executable, "script.py"])
    with subprocess.Popen(
        command, cwd=program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in said
    assert len(read_capture(file).calls) == 1


def test_descriptors_are_the_programs(capture: Capturing, program: Path) -> None:
    """A daemon closes all open descriptors and opens files of its own. The capture must not write to these or close
    them."""
    run = capture(
        "import os\nfrom library import scale\nscale(1)\nos.closerange(3, 256)\n"
        "files = [open(f'own{n}', 'w') for n in range(8)]\n"
        "scale(2)\n"
        "if os.fork() == 0:\n    scale(3)\n    [f.write('child') for f in files]\n    os._exit(0)\n"
        "os.wait()\n"
        "for file in files: file.write('mine'); file.close()\nscale(4)\n",
        "library:scale",
    )
    assert run.done.returncode == 0, run.done.stderr
    assert [(program / f"own{n}").read_text() for n in range(8)] == ["mine"] * 8
    assert sum(run.counts().values()) == 4


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "a/b.py", "x"], "b.py"),
        (["/usr/bin/python3.12", "-X", "dev", "-u", "b.py"], "b.py"),
        (["python", "-m", "package.module", "--secret"], "-m package.module"),
        (["python", "-c", "print(1)"], "-c"),
        (["/opt/bin/torchrun", "x.py"], "torchrun"),
        (["python"], "python"),
    ],
)
def test_a_programs_name_contains_no_paths_or_arguments(command: list[str], name: str) -> None:
    assert program_name(command) == name
