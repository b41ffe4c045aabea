"""Report files of Nsight Compute, of any kind: .ncu-rep through the installed tool, or exported CSV."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernwright.core.errors import BadFile, EnvironmentProblem, KernwrightError
from kernwright.diagnose.ncu.report.csv_report import EXPORT, read_csv_report
from kernwright.diagnose.ncu.report.metric_names import current_name
from kernwright.diagnose.ncu.report.nsight import NCU, module_folder, ncu_program
from kernwright.diagnose.ncu.report.profiled_kernel import Counter, ProfiledKernel
from kernwright.diagnose.ncu.report.quantity import to_base

MAGIC = b"NVR\0"  # the first bytes of a .ncu-rep file
BINARY = (".ncu-rep", ".ncu-repz")
MOST_BYTES = 1 << 30
MODULE_PROGRAM = Path(__file__).with_name("module_program.py")
TIMEOUT_S = 600.0
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


def read_report(path: Path) -> list[ProfiledKernel]:
    """Return the kernels of a report.

    Raises:
        KernwrightError: the file cannot be read, is not a report, or needs a tool that is not installed.
    """
    data = _bytes_of(path)
    if not data:
        raise BadFile(path, "", "the file is empty", EXPORT)
    if data.startswith(MAGIC):
        return _binary(path)
    if path.name.endswith(BINARY):
        raise BadFile(path, "", "has the name of a report, but is not one of Nsight Compute", "capture again")
    if b"\0" in data[:4096] and data[:2] not in _MARKS:
        raise BadFile(path, "", "is a binary file of an unknown kind", EXPORT)
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
    return read_csv_report(path, data.decode(encoding, errors="replace"))


def _bytes_of(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES and not path.name.endswith(BINARY):
            raise BadFile(path, "", f"has {path.stat().st_size >> 20} MB", "export fewer launches, or use the .ncu-rep")
        return path.read_bytes()
    except FileNotFoundError:
        raise KernwrightError(f"{path} does not exist", "name a .ncu-rep file, or its export as CSV") from None
    except OSError as error:
        raise KernwrightError(f"{path} cannot be read: {error.strerror}", "name a file that you may read") from None


def _binary(path: Path) -> list[ProfiledKernel]:
    program = ncu_program()
    if program is None:
        raise EnvironmentProblem(
            f"{path} is a binary report, and Nsight Compute (ncu) was not found",
            f"{NCU.remedy}; or on a machine that has it, {EXPORT} > FILE.csv",
        )
    kernels = _by_module(path, program)
    return kernels if kernels is not None else read_csv_report(path, exported(path, program))


def _by_module(path: Path, program: Path) -> list[ProfiledKernel] | None:
    """Read a report with Nsight Compute's Python module. Return None if it is missing or does not work here."""
    folder = module_folder(program)
    if folder is None:
        return None
    try:
        done = _run([sys.executable, "-I", str(MODULE_PROGRAM), str(folder), str(path)])
        lines = [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return [_kernel(number, found) for number, found in enumerate(lines)] or None


def _kernel(number: int, found: dict[str, Any]) -> ProfiledKernel:
    counters: dict[str, Counter] = {}
    for name, (value, unit) in found["counters"].items():
        if math.isfinite(value):
            counters[name] = Counter(*to_base(float(value), unit), name)
    for name, counter in list(counters.items()):
        counters.setdefault(current_name(name), counter)
    return ProfiledKernel(
        number=number,
        name=found["name"],
        grid=tuple(found["grid"]),
        block=tuple(found["block"]),
        device=found["device"],
        capability=found["capability"],
        counters=counters,
    )


def exported(path: Path, program: Path) -> str:
    """Return a binary report as CSV, made by ncu.

    Raises:
        BadFile: ncu cannot read it, such as a report of a newer version.
    """
    try:
        done = _run([str(program), "--import", str(path), "--csv", "--page", "raw"])
    except OSError as error:
        raise EnvironmentProblem(f"{program} cannot be run: {error.strerror}", NCU.remedy) from None
    except subprocess.TimeoutExpired:
        raise BadFile(path, "", f"ncu did not read it within {TIMEOUT_S:.0f} s", "capture fewer launches") from None
    if done.returncode or not done.stdout.strip():
        said = [line for line in (done.stdout + done.stderr).splitlines() if "==ERROR==" in line]
        reason = said[0].replace("==ERROR==", "").strip() if said else f"ncu ended with status {done.returncode}"
        remedy = "read it with the version of Nsight Compute that wrote it, or a newer one; it may also be cut off"
        raise BadFile(path, "", f"ncu cannot read it: {reason}", remedy)
    return done.stdout


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
    )
