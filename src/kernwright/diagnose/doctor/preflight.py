"""Preflight: the doctor's report and the choice of GPUs, before a benchmark starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernwright.core.errors import EnvironmentProblem
from kernwright.diagnose.doctor.gpu import Gpu, survey_gpus
from kernwright.diagnose.doctor.gpu_choice import GpuChoice, choose_gpus, visible_gpus
from kernwright.diagnose.doctor.report import DoctorReport, examine


@dataclass(frozen=True)
class Preflight:
    """The facts about the machine that are collected before a run starts."""

    report: DoctorReport
    choice: GpuChoice

    @property
    def gpu_names(self) -> list[str]:
        return [gpu.name for gpu in self.choice.gpus]

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that pin the chosen GPUs."""
        return self.choice.environment

    def pin(self) -> None:
        """Pin the chosen GPUs for this process. Call it before CUDA is initialised."""
        os.environ.update(self.environment)

    def record(self) -> dict[str, Any]:
        """Return the part that a perf dump keeps under `machine` of its provenance."""
        chosen = [{"index": gpu.index, "uuid": gpu.uuid, "in_use": gpu.in_use} for gpu in self.choice.gpus]
        return {"chosen_gpus": chosen, "checks": self.report.as_json()}

    def disturbances(self) -> list[str]:
        """Return the processes on the chosen GPUs now. Call it when the run's own processes have ended."""
        chosen = {gpu.uuid for gpu in self.choice.gpus}
        if not chosen:
            return []
        now = [gpu for gpu in survey_gpus().gpus if gpu.uuid in chosen]
        return [f"GPU {gpu.index}: {users}" for gpu in now if (users := _users(gpu))]


def preflight(
    gpus: int | None = None,
    *,
    needs: Iterable[str] = (),
    environment: Mapping[str, str] = os.environ,
    allow_busy: bool = False,
    anywhere: bool = False,
) -> Preflight:
    """Examine the machine and choose idle GPUs. It takes a fraction of a second and does not import torch.

    Args:
        gpus: number of GPUs that the run needs; None: one if the program sees any, otherwise none.
        needs: checks of the doctor that must be usable, such as `ncu`.
        environment: the environment of the run.
        allow_busy: take GPUs that others use, too.
        anywhere: accept a machine without NVIDIA GPUs; nothing is pinned there.

    Raises:
        EnvironmentProblem: too few GPUs are idle, or a needed check is not usable.
    """
    report = examine(environment)
    for check in needs:
        found = report.finding(check)
        if not found.is_usable:
            raise EnvironmentProblem(f"{check}: {found.found}: {found.cause}", found.remedy)
    count = min(1, len(visible_gpus(report.survey.gpus, environment))) if gpus is None else gpus
    if anywhere and not report.survey.gpus:
        count = 0
    if count and not report.survey.gpus:
        found = report.finding("gpus")
        raise EnvironmentProblem(f"the run needs {count} GPU(s): {found.cause}", found.remedy)
    return Preflight(report, choose_gpus(count, report.survey.gpus, environment, allow_busy))


def _users(gpu: Gpu) -> str:
    return "; ".join(str(process) for process in gpu.processes if process.pid != os.getpid())
