"""The Python of a program, and the versions of the libraries that it imports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernwright.capture.program import program_name
from kernwright.diagnose.perf_dump.provenance import LIBRARIES, library_versions

_PYTHON = re.compile(r"(?:pypy|python)[\d.]*")
_ASK = """
import importlib.metadata, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def program_python(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Return the path of the Python that runs a command: the program itself, or the one in a script's first line."""
    path = shutil.which(command[0], path=environment.get("PATH"))
    if path is None:
        return None
    if _PYTHON.fullmatch(Path(path).name):
        return path
    try:
        with Path(path).open("rb") as stream:
            first = stream.readline(512).decode(errors="replace")
    except OSError:
        return None
    words = first[2:].split() if first.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    found = words[0] if words and _PYTHON.fullmatch(Path(words[0]).name) else None
    return shutil.which(found, path=environment.get("PATH")) if found else None


def program_libraries(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the libraries of a program's Python, or {} if the program does not run in Python."""
    python = program_python(command, environment)
    if python is None:
        return {}
    if python == sys.executable:  # links are not resolved: the path of the link identifies a virtual environment
        return library_versions()
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *LIBRARIES], capture_output=True, text=True, timeout=10, env=dict(environment)
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def folder_name(command: Sequence[str]) -> str:
    """Return a program's name in a form that is valid as a folder name."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", program_name(command)).strip("-.")
    return name or "program"
