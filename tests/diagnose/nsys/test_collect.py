"""Programs profiled with a stand-in for nsys: a program that takes nsys' arguments and writes what nsys would."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest
from made_export import MadeExport
from made_trace import MadeTrace
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.diagnose.nsys import collect as collecting
from kernwright.diagnose.recording import read_recording
from kernwright.diagnose.trace.chrome import TraceError

NSYS = """#!{python}
import pathlib, shutil, subprocess, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    print(*words, file=log)
if words[0] == "profile":
    place = words.index("-o")
    status = subprocess.run(words[place + 2:]).returncode
    pathlib.Path(words[place + 1] + ".nsys-rep").write_text("report")
    sys.exit(status)
report = pathlib.Path(words[-1])
if report.read_text() != "report":
    sys.exit("unknown version of the report")
shutil.copy({export!r}, words[words.index("--output") + 1])
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in first on PATH. Return the file to which it writes its arguments."""
    export = MadeExport(tmp_path / "made.sqlite")
    export.kernel("nvjet_hsh_128x64_TNT", 10.0, 90.0, 5.0)
    programs = tmp_path / "bin"
    programs.mkdir()
    nsys, log = programs / "nsys", tmp_path / "log"
    nsys.write_text(NSYS.format(python=sys.executable, log=str(log), export=str(export.close())))
    nsys.chmod(nsys.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(programs))
    return log


def test_a_program_is_profiled_and_run_again_for_its_true_time(log: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program = [sys.executable, "-c", f"open({str(seen)!r}, 'a').write('x'); print('output of the program')"]
    out = ["--out", str(tmp_path / "report"), "--elapsed", "--json"]
    ending = CliRunner().invoke(app, ["profile", "--nsys", *out, "--delay", "2", "--", *program])
    assert ending.exit_code == 0, ending.output
    profiled, exported = log.read_text().splitlines()
    assert profiled.startswith("profile -t cuda,nvtx --trace-fork-before-exec=true --cuda-graph-trace=node --delay=2 ")
    assert exported.startswith("export --type sqlite ")
    assert seen.read_text() == "xx"
    held = json.loads(ending.stdout)
    assert held["gpu_us"] == 90.0 and held["elapsed_s"] > 0
    assert (tmp_path / "report.sqlite").is_file()


def test_a_program_that_fails_is_an_error(log: Path, tmp_path: Path) -> None:
    with pytest.raises(collecting.ProgramFailed, match="status 3"):
        collecting.collect([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "report")


def test_a_report_is_exported_to_be_read(log: Path, tmp_path: Path) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_text("report")
    assert [event.duration_us for event in read_recording(report).gpu] == [90.0]
    report.write_text("report of the future")
    with pytest.raises(TraceError, match="unknown version"):
        read_recording(report)


def test_without_nsys_a_report_is_an_error_that_names_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "find_program", lambda tool: None)
    report = tmp_path / "run.nsys-rep"
    report.write_text("report")
    with pytest.raises(EnvironmentProblem, match="not installed") as caught:
        read_recording(report)
    assert "nsys export" in caught.value.remedy
    with pytest.raises(EnvironmentProblem, match="not installed"):
        collecting.collect(["true"], tmp_path / "report")


@pytest.mark.parametrize("words", [["a", "b"], ["a", "--elapsed"], ["a", "--json", "--markdown"]])
def test_options_that_do_not_fit_are_refused(words: list[str], tmp_path: Path) -> None:
    MadeTrace().write(tmp_path / "a")
    ending = CliRunner().invoke(app, ["profile", *words])
    assert isinstance(ending.exception, KernwrightError)
