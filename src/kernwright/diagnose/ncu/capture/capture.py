"""Capture: one run of a program under Nsight Compute, and the report that it leaves."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.diagnose.doctor.counters import check_counters
from kernwright.diagnose.ncu.report.csv_report import read_csv_report
from kernwright.diagnose.ncu.report.nsight import needed_ncu
from kernwright.diagnose.ncu.report.profiled_kernel import ProfiledKernel
from kernwright.diagnose.ncu.report.report_file import exported
from kernwright.diagnose.program_run.native_gate import Sign
from kernwright.diagnose.program_run.watched_program import ProgramEnding, run_watched

NO_PERMISSION = Sign(b"err_nvgpuctrperm", re.compile(rb"err_nvgpuctrperm"))  # in lower-case output
OPEN_COUNTERS = (
    "run as an administrator, start the container with --cap-add=SYS_ADMIN, or let all users read counters: "
    "`options nvidia NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d of the host"
)


class CaptureFailed(KernwrightError):
    """A capture left no report."""


class CaptureInterrupted(KernwrightError):
    """A signal ended a capture. `number` is the signal's."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__("the capture was interrupted", "run the command again")


@dataclass(frozen=True, kw_only=True)
class CaptureRequest:
    """The program and the launches to profile.

    Attributes:
        kernel: regular expression for names of kernels, with template arguments; None: all kernels.
        skip: number of launches of these kernels to leave out first.
        count: most launches that are profiled; None: all.
        marked_only: profile only between cudaProfilerStart and cudaProfilerStop of the program.
        ends_early: end the program when the launches are profiled.
    """

    program: tuple[str, ...]
    report: Path
    kernel: str | None = None
    skip: int = 0
    count: int | None = None
    marked_only: bool = False
    ends_early: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


def capture_command(ncu: Path, request: CaptureRequest) -> list[str]:
    """Return the command that profiles a program.

    The clock is not locked, so that the ratio of SM and memory is that of production. Children are profiled too, and
    kernels of CUDA graphs one by one.
    """
    command = [
        *(str(ncu), "--clock-control", "none", "--set", "full", "--target-processes", "all"),
        *("--graph-profiling", "node", "--export", str(request.report), "--force-overwrite"),
    ]
    if request.kernel is not None:
        command += ["--kernel-name-base", "demangled", "--kernel-name", f"regex:{request.kernel}"]
    if request.skip:
        command += ["--launch-skip", str(request.skip)]
    if request.count is not None:
        command += ["--launch-count", str(request.count)]
    if request.marked_only:
        command += ["--profile-from-start", "off"]
    if request.ends_early:
        command += ["--kill", "yes"]
    return [*command, *request.program]


def capture(request: CaptureRequest) -> list[ProfiledKernel]:
    """Profile a program and return the kernels. The report and its export as CSV are kept beside each other.

    The output of the program and the progress of ncu go to standard error. All processes are ended with this one.

    Raises:
        EnvironmentProblem: ncu is missing, or counters may not be read.
        CaptureFailed: the program failed, or launched no such kernel.
        CaptureInterrupted: a signal ended the capture.
    """
    ncu = needed_ncu("to profile a program")
    with _output_to_standard_error():
        ending = run_watched(capture_command(ncu, request), os.environ | request.environment, (NO_PERMISSION,))
    _check_ending(request, ending)
    page = exported(request.report, ncu)
    table = request.report.with_suffix(".csv")
    table.write_text(page, encoding="utf-8")
    return read_csv_report(table, page)


def _check_ending(request: CaptureRequest, ending: ProgramEnding) -> None:
    if ending.interrupted:
        raise CaptureInterrupted(ending.interrupted)
    if ending.sign:
        found = check_counters(True)
        raise EnvironmentProblem(f"hardware counters may not be read: {ending.sign}", found.remedy or OPEN_COUNTERS)
    has_report = request.report.is_file()
    if ending.status and not (request.ends_early and has_report):
        kept = f"; what was profiled is in {request.report}" if has_report else ""
        raise CaptureFailed(
            f"`{' '.join(request.program[:4])}` under ncu ended with status {ending.status}{kept}",
            "see its output above",
        )
    if not has_report:
        wanted = f" that matches {request.kernel!r}" if request.kernel else ""
        skipped = f" after {request.skip} skipped ones" if request.skip else ""
        raise CaptureFailed(
            f"no kernel was profiled: the program launched none{wanted}{skipped}",
            "`kernwright profile` lists the kernels of a program; --kernel is searched in the whole name",
        )


@contextmanager
def _output_to_standard_error() -> Iterator[None]:
    """Send what children write to standard output to standard error, where progress belongs."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):
            stream.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def tail_of(program: Sequence[str]) -> str:
    """Return a short name of a program: its file without folder, for the name of a report."""
    words = [word for word in program if not word.startswith("-")]
    return "-".join(Path(word).name for word in words[:2])
