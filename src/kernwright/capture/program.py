"""Run a program with its own streams, signals and exit status."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from kernwright.capture.hook import FOLDER
from kernwright.core.errors import EnvironmentProblem

INJECTED = Path(__file__).resolve().parent / "inject"
FORWARDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
FROM_KERNEL = 0x80  # SI_KERNEL: the signal came from the terminal


def program_name(command: Sequence[str]) -> str:
    """Return the name of a program without its folder and its arguments."""
    name = Path(command[0]).name
    if not name.startswith("python"):
        return name
    rest = list(command[1:])
    while rest:
        word = rest.pop(0)
        if word == "-m" and rest:
            return f"-m {rest[0]}"
        if word == "-c":
            return "-c"
        if word in ("-W", "-X"):
            rest = rest[1:]
        elif not word.startswith("-"):
            return Path(word).name
    return name


def run(command: Sequence[str], folder: Path) -> int:
    """Run the program and return its exit status, or minus the number of the signal that ended it.

    Signals are blocked in this process from the start, so that records can still be written. A signal of the terminal
    reaches the program directly; one that was sent to this process is passed on.
    """
    waited = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        process = subprocess.Popen(
            list(command),
            env=environment(folder),
            close_fds=False,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise EnvironmentProblem(
            f"{command[0]} cannot be run: {error.strerror}", "write the program after -- as a shell would find it"
        ) from None
    while process.poll() is None:
        heard = signal.sigwaitinfo(waited)
        if heard.si_signo != signal.SIGCHLD and heard.si_code != FROM_KERNEL:
            process.send_signal(heard.si_signo)
    return process.returncode


def environment(folder: Path) -> dict[str, str]:
    own = dict(os.environ)
    path = own.get("PYTHONPATH")
    own["PYTHONPATH"] = str(INJECTED) + (os.pathsep + path if path else "")
    own[FOLDER] = str(folder)
    return own


def end_like(ending: int) -> NoReturn:
    """End this process like the program ended, with the same status or signal."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    if ending < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # only the program should leave a core dump
        if -ending != signal.SIGKILL:
            signal.signal(-ending, signal.SIG_DFL)
        os.kill(os.getpid(), -ending)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-ending})
        ending = 128 - ending
    os._exit(ending)
