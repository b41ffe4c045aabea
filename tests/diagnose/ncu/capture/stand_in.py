"""A program in the place of ncu, which needs a GPU: it runs the profiled program for real, and reports a stored page.

The variable STAND_IN chooses what goes wrong: `no permission`, `no kernel`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

EXPORTS = Path(__file__).parents[1] / "exports"
PROGRAM = """#!{python}
import json, os, pathlib, subprocess, sys, time
words = sys.argv[1:]
if words[0] == "--version":
    print("Version 2025.3.1.0 (build 1)")
elif words[0] == "--import":
    sys.stdout.write(pathlib.Path({page!r}).read_text())
else:
    options = {{}}
    while words[0].startswith("--"):
        name = words.pop(0)
        options[name] = True if name == "--force-overwrite" else words.pop(0)
    print("==PROF== Connected to process")
    if os.environ.get("STAND_IN") == "no permission":
        print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", flush=True)
        time.sleep(600)
    status = subprocess.call(words)
    if os.environ.get("STAND_IN") != "no kernel":
        pathlib.Path(options["--export"]).write_bytes(b"NVR\\0")
    pathlib.Path({log!r}).open("a").write(json.dumps([options, words]) + "\\n")
    sys.exit(status)
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in on PATH. Return the file in which it logs its options and the program, one JSON a line."""
    log = folder / "ncu.log"
    program = folder / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, page=str(EXPORTS / "raw.csv"), log=str(log)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KERNWRIGHT_NCU", str(folder / "reports"))
    return log
