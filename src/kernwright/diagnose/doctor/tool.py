"""Tools: the programs that builds and profiles need, with their versions."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernwright.diagnose.doctor.finding import Finding

VERSION_TIMEOUT_S = 10.0
_VERSION = re.compile(r"(?:release|version)\s+([0-9][\w.]*)", re.IGNORECASE)
_BARE_VERSION = re.compile(r"\b([0-9]+\.[0-9][\w.]*)")


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A program, the patterns of paths where it lies if it is not on PATH, what needs it, and how to get it."""

    name: str
    places: tuple[str, ...]
    purpose: str
    remedy: str


TOOLS = (
    Tool(
        name="nvcc",
        places=("usr/local/cuda/bin/nvcc", "usr/local/cuda-*/bin/nvcc"),
        purpose="builds of CUDA kernels",
        remedy="install the CUDA toolkit, and put its bin folder on PATH or set CUDA_HOME",
    ),
    Tool(
        name="ncu",
        places=(
            "usr/local/cuda/bin/ncu",
            "usr/local/cuda-*/bin/ncu",
            "opt/nvidia/nsight-compute/*/ncu",
            "usr/local/NVIDIA-Nsight-Compute*/ncu",
        ),
        purpose="captures of `kernwright ncu`; stored reports are read without it if they are exported as CSV",
        remedy="install NVIDIA Nsight Compute (part of the CUDA toolkit) and put it on PATH",
    ),
    Tool(
        name="nsys",
        places=(
            "usr/local/cuda/bin/nsys",
            "usr/local/cuda-*/bin/nsys",
            "opt/nvidia/nsight-systems/*/bin/nsys",
            "opt/nvidia/nsight-systems*/bin/nsys",
        ),
        purpose="profiles of the whole system; its SQLite exports are read without it",
        remedy="install NVIDIA Nsight Systems (part of the CUDA toolkit) and put it on PATH",
    ),
    Tool(name="ninja", places=(), purpose="builds of native kernels", remedy="pip install ninja"),
)


def check_tools(root: Path = Path("/")) -> list[Finding]:
    """Return a finding for each tool. The programs are asked for their versions side by side.

    Args:
        root: the root of the file system, below which the usual places of installations are searched.
    """
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        return list(pool.map(lambda tool: check_tool(tool, root), TOOLS))


def check_tool(tool: Tool, root: Path = Path("/")) -> Finding:
    path = find_program(tool, root)
    if path is None:
        return Finding(
            check=tool.name,
            status="missing",
            found="not found",
            cause=f"needed for {tool.purpose}",
            remedy=tool.remedy,
        )
    version, problem = ask_version(path)
    details = {"path": str(path), "version": version}
    if problem:
        return Finding(
            check=tool.name,
            status="problem",
            found=str(path),
            cause=problem,
            remedy=f"run `{path} --version` to see its own message; {tool.remedy}",
            details=details,
        )
    return Finding(check=tool.name, status="ok", found=f"{version or 'version unknown'}, {path}", details=details)


def find_program(tool: Tool, root: Path = Path("/")) -> Path | None:
    """Return the path of a tool: from PATH, CUDA_HOME, the usual places (the latest version), or a Python package."""
    searches: tuple[Callable[[], str | None], ...] = (
        lambda: shutil.which(tool.name),
        lambda: _in_cuda_home(tool.name),
        lambda: _latest(path for place in tool.places for path in root.glob(place)),
        lambda: _in_package(tool.name),
    )
    found = next((path for search in searches if (path := search())), None)
    return Path(found) if found else None


def ask_version(program: Path) -> tuple[str, str]:
    """Return the version that a program reports, and the problem if it cannot be run."""
    try:
        done = subprocess.run(
            [str(program), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
        )
    except OSError as error:
        return "", f"cannot be run: {error.strerror or error}"
    except subprocess.TimeoutExpired:
        return "", f"did not answer within {VERSION_TIMEOUT_S:g} s"
    said = f"{done.stdout}\n{done.stderr}"
    if done.returncode:
        return "", f"`--version` ended with status {done.returncode}: {_last_line(said)}"
    match = _VERSION.search(said) or _BARE_VERSION.search(said)
    return (match[1] if match else ""), ""


def _in_cuda_home(name: str) -> str | None:
    homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
    return next((path for home in homes if home and (path := shutil.which(name, path=str(Path(home, "bin"))))), None)


def _latest(paths: Iterable[Path]) -> str | None:
    found = sorted((path for path in paths if os.access(path, os.X_OK)), key=_by_number)
    return str(found[-1]) if found else None


def _by_number(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def _in_package(name: str) -> str | None:
    """Return the program of a Python package of its name, which need not be on PATH."""
    beside = Path(sys.executable).parent / name
    if os.access(beside, os.X_OK):
        return str(beside)
    spec = importlib.util.find_spec(name) if name == "ninja" else None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    places = (Path(folder, "data", "bin", name) for folder in folders)
    return next((str(path) for path in places if os.access(path, os.X_OK)), None)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"
