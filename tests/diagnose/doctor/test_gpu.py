"""GPUs through the real bindings of NVML, with a stand-in for the driver; the choice of idle ones; the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from diagnose.doctor.fake_driver import RESERVED_MIB, fake_gpus

from kernwright.core.errors import EnvironmentProblem
from kernwright.diagnose.doctor.driver import check_cuda, check_driver, check_gpus
from kernwright.diagnose.doctor.gpu import Gpu, GpuProcess, GpuSurvey
from kernwright.diagnose.doctor.gpu_choice import choose_gpus

PROGRAM = """
import dataclasses, json, os, sys
from kernwright.diagnose.doctor.gpu import survey_gpus
found = []
for variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    survey = survey_gpus()
    found.append(dataclasses.asdict(survey) | {"idle": [gpu.index for gpu in survey.gpus if gpu.is_idle]})
    for name in variables:
        del os.environ[name]
assert "torch" not in sys.modules
print(json.dumps(found))
"""


def surveys(folder: Path | None, *cases: dict[str, str], program: str = PROGRAM) -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    environment |= {"LD_LIBRARY_PATH": str(folder)} if folder else {}
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(cases)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_gpus_are_idle_without_processes_memory_and_work(driver_folder: Path) -> None:
    gpus = fake_gpus([(32, 5, 0), (33, 0, 0), (4, 6, 0), (4, 0, os.getpid()), (4, 0, 999_999)])
    usual, old, broken = surveys(
        driver_folder, {"FAKE_GPUS": gpus}, {"FAKE_GPUS": gpus, "FAKE_OLD": "1"}, {"FAKE_NVML_ERROR": "18"}
    )
    assert usual["idle"] == [0] and (usual["driver"], usual["cuda"]) == ("580.65.06", "13.0")
    first, *_, ours, hidden = usual["gpus"]
    assert (first["used_mib"], first["memory_mib"], first["capability"]) == (32, 143_771, "9.0")
    (process,) = ours["processes"]
    assert process["pid"] == os.getpid() and "python" in process["command"] and process["user"]
    assert hidden["processes"][0]["command"] == "", "a process of another container is not visible"
    assert old["gpus"][0]["used_mib"] == 32 + RESERVED_MIB and old["gpus"][0]["busy_percent"] is None
    assert broken["kind"] == "error" and "mismatch" in broken["failure"] and broken["gpus"] == []


def test_the_load_of_a_process_that_just_ended_is_waited_for(driver_folder: Path) -> None:
    gpus = fake_gpus([(4, 60, 0)])
    (settled,) = surveys(driver_folder, {"FAKE_GPUS": gpus, "FAKE_SETTLES": "2"})
    assert settled["idle"] == [0] and settled["gpus"][0]["busy_percent"] == 0


def test_a_machine_without_driver_or_bindings_is_told_apart() -> None:
    (no_driver,) = surveys(None, {})
    assert no_driver["kind"] in ("driver", "") and (no_driver["kind"] == "" or not no_driver["gpus"])
    (no_bindings,) = surveys(None, {}, program='import sys; sys.modules["pynvml"] = None' + PROGRAM)
    assert no_bindings["kind"] == "library" and no_bindings["gpus"] == []


def gpu(index: int, used_mib: int = 0, pid: int = 0) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}0000000",
        name="NVIDIA H200",
        capability="9.0",
        memory_mib=143_771,
        used_mib=used_mib,
        busy_percent=0,
        processes=(GpuProcess(pid=pid, user="ann", command="train.py", used_mib=used_mib),) if pid else (),
    )


GPUS = [gpu(0, 9000, 41), gpu(1), gpu(2, 50), gpu(3)]


def test_idle_gpus_are_pinned_by_their_bus_order() -> None:
    chosen = choose_gpus(2, GPUS, {})
    assert chosen.environment == {"CUDA_VISIBLE_DEVICES": "1,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [each.index for each in chosen.gpus] == [1, 3]
    assert choose_gpus(0, GPUS, {}).environment == {}


def test_busy_gpus_are_refused_with_their_users() -> None:
    with pytest.raises(EnvironmentProblem, match=r"process 41 \(train.py of ann.*GPU 2: 50 MiB"):
        choose_gpus(3, GPUS, {})
    assert [each.index for each in choose_gpus(3, GPUS, {}, allow_busy=True).gpus] == [0, 1, 3]
    with pytest.raises(EnvironmentProblem, match="there are 4"):
        choose_gpus(5, GPUS, {}, allow_busy=True)


def test_gpus_that_the_user_names_stay_and_are_checked() -> None:
    named = choose_gpus(1, GPUS, {"CUDA_VISIBLE_DEVICES": "3,GPU-1000"})
    assert [each.index for each in named.gpus] == [3, 1] and named.environment == {}
    with pytest.raises(EnvironmentProblem, match="GPU 0"):
        choose_gpus(1, GPUS, {"CUDA_VISIBLE_DEVICES": "1,0"})
    with pytest.raises(EnvironmentProblem, match="there are 1"):
        choose_gpus(2, GPUS, {"CUDA_VISIBLE_DEVICES": "1,-1,3"})
    assert choose_gpus(1, GPUS, {"CUDA_VISIBLE_DEVICES": "MIG-12"}).gpus == ()


def test_the_gpus_as_a_finding() -> None:
    survey = GpuSurvey(gpus=tuple(GPUS), driver="580", cuda="13.0")
    some = check_gpus(survey, {})
    assert some.status == "warning" and some.details["idle"] == [1, 3] and "train.py" in some.cause
    assert check_gpus(survey, {"CUDA_VISIBLE_DEVICES": "0"}).status == "problem"
    assert check_gpus(survey, {"CUDA_VISIBLE_DEVICES": "1"}).status == "ok"
    hidden = check_gpus(survey, {"CUDA_VISIBLE_DEVICES": ""})
    assert hidden.status == "problem" and "CUDA_VISIBLE_DEVICES" in hidden.cause


@pytest.mark.parametrize(
    ("cuda", "torch", "nvcc", "status"),
    [
        ("13.0", "13.0", "13.1", "ok"),
        ("12.8", "12.9", "12.9", "ok"),  # a later minor version runs
        ("12.8", "13.0", "12.8", "problem"),
        ("12.8", "12.8", "13.0", "warning"),
        ("13.0", "", "13.0", "problem"),
        ("", "13.0", "13.0", "ok"),  # the driver did not tell
    ],
)
def test_cuda_versions_fit_the_driver(cuda: str, torch: str, nvcc: str, status: str) -> None:
    assert check_cuda(GpuSurvey(gpus=(GPUS[1],), driver="570", cuda=cuda), torch, nvcc).status == status


def test_a_gpu_without_a_working_driver_is_a_problem(tmp_path: Path) -> None:
    missing = GpuSurvey(failure="no library", kind="driver")
    assert check_driver(missing, tmp_path).status == "missing"
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x040300\n")  # its sound device alone is no GPU
    assert check_driver(missing, tmp_path).status == "missing"
    (device / "class").write_text("0x030200\n")
    found = check_driver(missing, tmp_path)
    assert found.status == "problem" and "0000:01:00.0" in found.found
    assert check_driver(GpuSurvey(failure="refused", kind="error"), tmp_path / "none").status == "problem"
