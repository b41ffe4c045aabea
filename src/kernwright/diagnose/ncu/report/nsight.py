"""Nsight Compute as installed on this machine: the program ncu, and its Python module that reads reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem
from kernwright.diagnose.doctor.tool import TOOLS, ask_version, find_program

NCU = next(tool for tool in TOOLS if tool.name == "ncu")
MODULE = "ncu_report.py"


def ncu_program() -> Path | None:
    """Return the path of ncu, or None if it is not installed."""
    return find_program(NCU)


def needed_ncu(purpose: str) -> Path:
    """Return the path of ncu.

    Raises:
        EnvironmentProblem: it is not installed, or cannot be run.
    """
    program = ncu_program()
    if program is None:
        raise EnvironmentProblem(f"Nsight Compute (ncu) was not found; it is needed {purpose}", NCU.remedy)
    _, problem = ask_version(program)
    if problem:
        raise EnvironmentProblem(f"{program}: {problem}", NCU.remedy)
    return program


def module_folder(program: Path) -> Path | None:
    """Return the folder of the Python module that belongs to an installed ncu, or None.

    `bin/ncu` of a CUDA toolkit starts the program of a folder nsight-compute-VERSION beside it.
    """
    for folder in _folders(program):
        for pattern in ("extras/python", "nsight-compute*/extras/python"):
            found = sorted(place for place in folder.glob(pattern) if (place / MODULE).is_file())
            if found:
                return found[-1]
    return None


def _folders(program: Path) -> Iterator[Path]:
    """Yield the folders above a program and above the file that it is a link to, the nearest first."""
    for path in (program, program.resolve()):
        yield from list(path.parents)[:4]
