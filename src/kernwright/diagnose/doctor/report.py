"""DoctorReport: the findings of all checks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kernwright.core.errors import KernwrightError, did_you_mean
from kernwright.diagnose.doctor.counters import check_counters
from kernwright.diagnose.doctor.driver import check_cuda, check_driver, check_gpus
from kernwright.diagnose.doctor.finding import Finding
from kernwright.diagnose.doctor.framework import check_python, check_torch, check_triton, torch_cuda
from kernwright.diagnose.doctor.gpu import GpuSurvey, survey_gpus
from kernwright.diagnose.doctor.hub import check_hub
from kernwright.diagnose.doctor.sglang import check_sglang
from kernwright.diagnose.doctor.storage import check_disk, check_folders, used_folders
from kernwright.diagnose.doctor.tool import check_tools


@dataclass(frozen=True)
class DoctorReport:
    """The findings of the doctor on this machine."""

    findings: tuple[Finding, ...]
    survey: GpuSurvey

    def finding(self, check: str) -> Finding:
        found = next((each for each in self.findings if each.check == check), None)
        if found is None:
            names = [each.check for each in self.findings]
            known = f"the checks are: {', '.join(names)}"
            raise KernwrightError(f"the doctor has no check {check!r}", did_you_mean(check, names, known))
        return found

    def failures(self, required: Iterable[str] = ()) -> list[Finding]:
        """Return the problems, and the required checks that are not usable."""
        needed = {self.finding(check).check for check in required}
        return [
            each for each in self.findings if each.status == "problem" or (each.check in needed and not each.is_usable)
        ]

    def as_json(self) -> dict[str, Any]:
        return {each.check: each.as_json() for each in self.findings}


def examine(environment: Mapping[str, str] = os.environ) -> DoctorReport:
    """Run all checks, the slow ones in parallel. No slow library is imported, such as torch.

    Args:
        environment: variables of the run that the report is for.
    """
    folders = used_folders()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(survey_gpus)
        tools = {each.check: each for each in check_tools()}
        survey = asked.result()
    findings = (
        check_python(),
        check_gpus(survey, environment),
        check_driver(survey),
        check_torch(),
        check_triton(),
        check_cuda(survey, torch_cuda(), str(tools["nvcc"].details.get("version", ""))),
        tools["nvcc"],
        tools["ninja"],
        tools["ncu"],
        check_counters(bool(survey.gpus)),
        tools["nsys"],
        check_sglang(),
        check_hub(gated_models(), environment),
        check_disk(folders),
        check_folders(folders),
    )
    return DoctorReport(findings, survey)


def gated_models() -> dict[str, str]:
    """Return the hub ids of gated models by preset. A preset that cannot be read is reported where it is used."""
    from kernwright.diagnose.presets.catalog import list_presets, load_preset

    found = {}
    for name, path in list_presets().items():
        try:
            preset = load_preset(path)
        except KernwrightError:
            continue
        if preset.sglang is not None and preset.sglang.gated:
            found[name] = preset.sglang_model
    return found
