"""Collect: profile a program with nsys, and export its reports."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.diagnose.doctor.tool import TOOLS, find_program
from kernwright.diagnose.trace.chrome import TraceError

REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
INSTALL = "install NVIDIA Nsight Systems and put `nsys` on PATH"
STDERR = 2  # output of programs; standard output has only results
MOST_OUTPUT = 400  # characters of a failed command's output that an error repeats


class ProgramFailed(KernwrightError):
    """A program that was profiled ended with an error."""


def nsys_program() -> Path:
    """Return the path of nsys. Raises EnvironmentProblem if it is not installed."""
    (tool,) = (tool for tool in TOOLS if tool.name == "nsys")
    found = find_program(tool)
    if found is None:
        raise EnvironmentProblem("nsys is not installed", f"{INSTALL}; SQLite exports are read without it")
    return found


def profile_command(
    nsys: Path, report: Path, program: Sequence[str], delay: float | None = None, duration: float | None = None
) -> list[str]:
    """Return the command that profiles a program.

    Kernels of CUDA graphs are recorded one by one, and processes that the program forks are followed.

    Args:
        report: the file to write, without its suffix.
        delay: seconds until the recording starts.
        duration: seconds that are recorded.
    """
    limits = [f"--{name}={value:g}" for name, value in (("delay", delay), ("duration", duration)) if value is not None]
    return [
        *(str(nsys), "profile", "-t", "cuda,nvtx", "--trace-fork-before-exec=true", "--cuda-graph-trace=node"),
        *limits,
        *("--force-overwrite=true", "-o", str(report), *program),
    ]


def export_command(nsys: Path, report: Path, export: Path) -> list[str]:
    """Return the command that exports a report as SQLite."""
    words = ("export", "--type", "sqlite", "--force-overwrite", "true", "--output")
    return [str(nsys), *words, str(export), str(report)]


def collect(program: Sequence[str], report: Path, delay: float | None = None, duration: float | None = None) -> Path:
    """Profile a program and return the SQLite export. The program's output goes to standard error.

    Raises:
        EnvironmentProblem: if nsys is not installed or does not run.
        ProgramFailed: if the program fails, or nsys writes no report.
    """
    nsys = nsys_program()
    command = profile_command(nsys, report, program, delay, duration)
    status = _run(command)
    written = next((path for suffix in REPORT_SUFFIXES if (path := _with(report, suffix)).is_file()), None)
    if status or written is None:
        what = f"ended with status {status}" if status else "wrote no report"
        raise ProgramFailed(f"`{' '.join(command)}` {what}", "see its output above")
    export = _with(report, ".sqlite")
    _export(nsys, written, export)
    return export


def elapsed_seconds(program: Sequence[str]) -> float:
    """Run a program without a profiler and return how long it took. Its output goes to standard error."""
    began = time.perf_counter()
    status = _run(program)
    if status:
        raise ProgramFailed(f"`{' '.join(program)}` ended with status {status} without nsys", "see its output above")
    return time.perf_counter() - began


@contextmanager
def export_report(report: Path) -> Iterator[Path]:
    """Export a report for as long as the context is open.

    Raises:
        TraceError: if the file does not exist, or nsys cannot read it.
        EnvironmentProblem: if nsys is not installed.
    """
    if not report.is_file():
        raise TraceError(f"cannot read {report}: it is not a file", "give an nsys report, or its SQLite export")
    try:
        nsys = nsys_program()
    except EnvironmentProblem as error:
        elsewhere = f"nsys export --type sqlite --output FILE.sqlite {report.name}"
        raise EnvironmentProblem(
            f"{report} needs nsys to be read, and {error.cause}",
            f"{INSTALL}; or export it where nsys is installed (`{elsewhere}`), and give FILE.sqlite",
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder, f"{report.stem}.sqlite")
        _export(nsys, report, export)
        yield export


def _export(nsys: Path, report: Path, export: Path) -> None:
    command = export_command(nsys, report, export)
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        raise EnvironmentProblem(f"{nsys} cannot be run: {error.strerror}", INSTALL) from None
    if ended.returncode or not export.is_file():
        said = ended.stdout.decode("utf-8", "replace").strip()[-MOST_OUTPUT:]
        raise TraceError(
            f"nsys cannot export {report} (status {ended.returncode}): {said}",
            "use the version of nsys that wrote the report, or a newer one",
        )


def _run(command: Sequence[str]) -> int:
    try:
        return subprocess.run(command, stdout=STDERR, check=False).returncode
    except OSError as error:
        raise EnvironmentProblem(f"{command[0]} cannot be run: {error.strerror}", "check the command's name") from None


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
