"""GPUs: the values that NVML reports for each one, its processes, and whether it is idle."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

MIB = 1 << 20
MOST_USED_MIB = 32  # memory in use on an idle GPU; the driver itself holds some
MOST_BUSY_PERCENT = 5
SETTLED_AFTER_S = 3.0  # NVML averages the load over up to a second, so a GPU looks busy after its last process ended
ASKED_AGAIN_AFTER_S = 0.2


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A compute process of a GPU. Its user and command are empty if it runs outside this container."""

    pid: int
    user: str
    command: str
    used_mib: int | None

    def __str__(self) -> str:
        about = " ".join(part for part in (self.command, f"of {self.user}" if self.user else "") if part)
        memory = f", {self.used_mib} MiB" if self.used_mib is not None else ""
        return f"process {self.pid} ({about or 'not visible from here'}{memory})"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU at one moment. A value that this GPU does not report is None."""

    index: int
    uuid: str
    name: str
    capability: str
    memory_mib: int | None
    used_mib: int | None
    busy_percent: int | None
    processes: tuple[GpuProcess, ...]

    @property
    def in_use(self) -> str:
        """The reason why the GPU is not idle, or "". This process itself does not count."""
        others = [process for process in self.processes if process.pid != os.getpid()]
        own = sum(process.used_mib or 0 for process in self.processes if process.pid == os.getpid())
        reasons = [str(process) for process in others]
        if self.used_mib is not None and self.used_mib - own > MOST_USED_MIB:
            reasons.append(f"{self.used_mib - own} MiB in use, more than {MOST_USED_MIB}")
        if self.busy_percent is not None and self.busy_percent > MOST_BUSY_PERCENT:
            reasons.append(f"{self.busy_percent} % busy, more than {MOST_BUSY_PERCENT}")
        return "; ".join(reasons)

    @property
    def is_idle(self) -> bool:
        return not self.in_use

    @property
    def is_settling(self) -> bool:
        """The GPU reports load, although no process runs on it and no memory is in use.

        The load comes from a process that has just ended, or from one that cannot be seen from here.
        """
        return not self.is_idle and replace(self, busy_percent=None).is_idle


@dataclass(frozen=True, kw_only=True)
class GpuSurvey:
    """All GPUs of the machine and its driver, or the reason why they cannot be read.

    Attributes:
        failure: "" if the driver answered.
        kind: `library` if nvidia-ml-py is missing, `driver` if the driver's library is missing, `error` if the driver
            returned an error.
    """

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: str = ""
    failure: str = ""
    kind: str = ""


def survey_gpus() -> GpuSurvey:
    """Return the GPUs of this machine, in the order of their bus addresses. torch is not imported.

    If the load of a GPU may be that of a process that has just ended, this waits up to `SETTLED_AFTER_S`.
    """
    try:
        import pynvml
    except ImportError:
        return GpuSurvey(failure="the package nvidia-ml-py is not installed", kind="library")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return GpuSurvey(failure="the driver's library libnvidia-ml.so.1 was not found", kind="driver")
    except pynvml.NVMLError as error:
        return GpuSurvey(failure=f"the driver answers: {error}", kind="error")
    try:
        return _settled_survey(pynvml)
    except pynvml.NVMLError as error:
        return GpuSurvey(failure=f"the driver answers: {error}", kind="error")
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _settled_survey(nvml: Any) -> GpuSurvey:
    deadline = time.monotonic() + SETTLED_AFTER_S
    survey = _survey(nvml)
    while any(gpu.is_settling for gpu in survey.gpus) and time.monotonic() < deadline:
        time.sleep(ASKED_AGAIN_AFTER_S)
        survey = _survey(nvml)
    return survey


def _survey(nvml: Any) -> GpuSurvey:
    cuda = _answer(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return GpuSurvey(
        gpus=tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())),
        driver=str(_answer(nvml, nvml.nvmlSystemGetDriverVersion) or ""),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
    )


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = _answer(nvml, lambda: _memory(nvml, handle))
    capability = _answer(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    busy = _answer(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    return Gpu(
        index=index,
        uuid=str(_answer(nvml, nvml.nvmlDeviceGetUUID, handle) or ""),
        name=str(_answer(nvml, nvml.nvmlDeviceGetName, handle) or "unknown GPU"),
        capability=f"{capability[0]}.{capability[1]}" if capability else "",
        memory_mib=memory.total // MIB if memory else None,
        used_mib=memory.used // MIB if memory else None,
        busy_percent=busy.gpu if busy else None,
        processes=tuple(map(_process, _answer(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ())),
    )


def _memory(nvml: Any, handle: Any) -> Any:
    """Return the memory of a GPU. NVML's second version leaves out the part that the driver reserves."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except (nvml.NVMLError, AttributeError, TypeError):
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _answer(nvml: Any, question: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of one NVML query, or None if this GPU or driver does not support it."""
    try:
        return question(*arguments)
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):  # the second one: the driver is older than the bindings
        return None


def _process(found: Any) -> GpuProcess:
    folder = Path("/proc", str(found.pid))
    user = command = ""
    with suppress(OSError):
        owner = folder.stat().st_uid
        user = str(owner)
        with suppress(KeyError):
            user = pwd.getpwuid(owner).pw_name
        words = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").split()
        command = " ".join(words)[:120] or (folder / "comm").read_text(errors="replace").strip()
    used = found.usedGpuMemory
    return GpuProcess(pid=found.pid, user=user, command=command, used_mib=None if used is None else used // MIB)
