"""Captures with a stand-in for ncu: what is run, what is kept, and what is said when it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from diagnose.doctor.fake_driver import fake_gpus
from stand_in import install

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.diagnose.ncu.capture.capture import CaptureFailed, CaptureRequest, capture
from kernwright.diagnose.ncu.capture.report_path import report_path
from kernwright.diagnose.ncu.capture.row_orders import CALLS, WARM_UP, chosen_rows, row_program
from kernwright.diagnose.ncu.report.report_file import read_report
from kernwright.tasks.catalog import find_task

HELLO = (sys.executable, "-c", "print('hello')")
FAILING = (sys.executable, "-c", "raise SystemExit(3)")


def request(folder: Path, **changes: object) -> CaptureRequest:
    return CaptureRequest(**{"program": HELLO, "report": folder / "run.ncu-rep", **changes})  # type: ignore[arg-type]


def test_a_capture_keeps_its_report_and_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log = install(tmp_path, monkeypatch)
    kernels = capture(request(tmp_path, kernel="norm|rope", skip=2, count=5, marked_only=True, ends_early=True))
    assert len(kernels) == 4
    assert [each.counters for each in read_report(tmp_path / "run.csv")] == [each.counters for each in kernels]
    told = capfd.readouterr()
    assert told.out == "" and "hello" in told.err and "==PROF==" in told.err
    options, program = json.loads(log.read_text())
    assert program == list(HELLO)
    assert options["--clock-control"] == "none" and options["--graph-profiling"] == "node"
    assert options["--kernel-name"] == "regex:norm|rope"
    assert (options["--launch-skip"], options["--launch-count"]) == ("2", "5")
    assert (options["--profile-from-start"], options["--kill"]) == ("off", "yes")


def test_a_capture_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    with pytest.raises(CaptureFailed, match="status 3"):
        capture(request(tmp_path, program=FAILING))
    monkeypatch.setenv("STAND_IN", "no permission")
    with pytest.raises(EnvironmentProblem, match="ERR_NVGPUCTRPERM") as refused:
        capture(request(tmp_path))
    assert "SYS_ADMIN" in refused.value.remedy or "RestrictProfiling" in refused.value.remedy
    monkeypatch.setenv("STAND_IN", "no kernel")
    with pytest.raises(CaptureFailed, match="absent_kernel"):
        capture(request(tmp_path, kernel="absent_kernel", report=tmp_path / "none.ncu-rep"))


def test_without_ncu_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernwright.diagnose.ncu.report.nsight.ncu_program", lambda: None)
    with pytest.raises(EnvironmentProblem, match="ncu") as missing:
        capture(request(tmp_path))
    assert "install" in missing.value.remedy


def test_a_busy_gpu_is_refused_unless_the_user_accepts_it(
    driver_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = install(tmp_path, monkeypatch)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_folder))
    monkeypatch.setenv("FAKE_GPUS", fake_gpus([(900, 0, 999_999)]))
    command = [sys.executable, "-m", "kernwright", "ncu", "flux", "--kernel", "gemm"]
    refused = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert refused.returncode == 2 and "--allow-busy" in refused.stderr
    assert not log.exists(), "nothing was profiled"
    subprocess.run([*command, "--allow-busy"], capture_output=True, text=True, cwd=tmp_path)
    _, program = json.loads(log.read_text())
    assert "--allow-busy" in program, "the preset's own check of the machine accepts the GPU, too"


def test_ctrl_c_ends_ncu_and_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    sleeper = f"import os, pathlib, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); "
    program = [sys.executable, "-c", sleeper + "time.sleep(600)"]
    driver = (
        "import sys; from kernwright.diagnose.ncu.capture import target; from kernwright.cli.main import main;"
        "target._machine = lambda *a: type('Machine', (), {'environment': {}})();"
        f"sys.argv = ['kernwright', 'ncu', '--count', '1', '--', *{program!r}]; main()"
    )
    with subprocess.Popen([sys.executable, "-c", driver], stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 130)
    assert "interrupted" in told
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("side", ["eager", "candidate"])
def test_the_program_of_a_row_calls_the_side(side: str, tmp_path: Path) -> None:
    task = find_task("norm_scale_shift")
    called = tmp_path / "called"
    if side == "candidate":
        (tmp_path / "candidate.toml").write_text(
            'op = "norm_scale_shift"\nlanguage = "python"\nentry = "kernel.py:shifted"\n'
        )
        (tmp_path / "kernel.py").write_text(
            "def shifted(x, scale, shift, *others, **scalars):\n"
            f"    open({str(called)!r}, 'a').write('x')\n    return x\n"
        )
        side = str(tmp_path)
    (row, *_) = chosen_rows(task, "smoke", [side])
    with row_program(task, row, side, "cpu") as (command, environment):
        orders = Path(command[-1])
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
        assert orders.is_file()
    assert done.returncode == 0, done.stderr
    assert f"on {row.id}" in done.stderr
    assert not orders.exists()
    if side != "eager":
        assert called.read_text() == "x" * (WARM_UP + CALLS)


def test_the_default_is_the_first_production_row() -> None:
    task = find_task("norm_scale_shift")
    (row,) = chosen_rows(task, None, ["eager"])
    assert row.set == "production"
    assert len(chosen_rows(task, "production", ["eager"])) > 1
    with pytest.raises(KernwrightError, match="absent_row"):
        chosen_rows(task, "absent_row", ["eager"])


def test_reports_are_filed_by_label(tmp_path: Path) -> None:
    first, second = (report_path("try-1", "rows/of a: task", tmp_path) for _ in range(2))
    assert first.parent == second.parent == tmp_path / "try-1" and first != second
    assert first.name.endswith(".ncu-rep") and "/" not in first.name and " " not in first.name
    with pytest.raises(KernwrightError, match="label"):
        report_path("../x", "what", tmp_path)
