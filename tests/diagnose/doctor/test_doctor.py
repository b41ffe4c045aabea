"""kernwright doctor as a program, and the preflight of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from diagnose.doctor.fake_driver import fake_gpus

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.diagnose.doctor.finding import Finding
from kernwright.diagnose.doctor.gpu import GpuSurvey
from kernwright.diagnose.doctor.preflight import preflight
from kernwright.diagnose.doctor.report import DoctorReport

CHECKS = {
    *("python", "gpus", "driver", "torch", "triton", "cuda", "nvcc", "ninja", "ncu", "counters", "nsys", "sglang"),
    *("hub", "disk", "folders"),
}


def doctor(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernwright", "doctor", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"LD_LIBRARY_PATH": str(folder)} | variables,
    )


def test_the_doctor_reports_every_check_and_its_status_is_for_scripts(driver_folder: Path) -> None:
    whole = doctor(driver_folder, "--json", FAKE_GPUS=fake_gpus([(4, 0, 0), (900, 0, 999_999)]))
    found = json.loads(whole.stdout)
    assert set(found["checks"]) == CHECKS
    assert all(each["remedy"] for each in found["checks"].values() if each["status"] != "ok")
    assert found["checks"]["gpus"]["details"]["idle"] == [0]
    assert whole.returncode == (0 if found["fit"] else 1) and found["fit"] == (not found["failures"])
    busy = doctor(driver_folder, FAKE_GPUS=fake_gpus([(900, 0, 999_999)]))
    assert busy.returncode == 1 and "999999" in busy.stdout and "remedy: " in busy.stdout


def report(**statuses: str) -> DoctorReport:
    findings = (Finding(check=name, status=status, found="x") for name, status in statuses.items())  # type: ignore[arg-type]
    return DoctorReport(tuple(findings), GpuSurvey())


def test_problems_fail_and_missing_tools_only_if_they_are_required() -> None:
    machine = report(torch="ok", ncu="missing", hub="warning", folders="problem")
    assert [each.check for each in machine.failures()] == ["folders"]
    assert [each.check for each in machine.failures(["ncu", "hub"])] == ["ncu", "folders"]
    with pytest.raises(KernwrightError, match="did you mean ncu"):
        machine.failures(["nuc"])


def test_a_preflight_without_a_gpu_refuses_a_run_that_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernwright.diagnose.doctor.report.survey_gpus", GpuSurvey)
    found = preflight()
    assert found.gpu_names == [] and found.environment == {} and found.disturbances() == []
    assert set(json.loads(json.dumps(found.record()))["checks"]) == CHECKS
    with pytest.raises(EnvironmentProblem, match="needs 2 GPU"):
        preflight(2)
    with pytest.raises(EnvironmentProblem, match="gpus"):
        preflight(needs=["gpus"])
