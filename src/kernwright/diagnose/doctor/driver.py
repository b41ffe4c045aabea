"""The driver: GPUs as findings, and whether the driver supports the CUDA versions of the software."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from kernwright.diagnose.doctor.finding import Finding
from kernwright.diagnose.doctor.gpu import Gpu, GpuSurvey
from kernwright.diagnose.doctor.gpu_choice import VISIBLE, visible_gpus

NVIDIA = "0x10de"  # the vendor in the PCI bus's files
_DISPLAY = "0x03"  # the class of display controllers and 3D accelerators
SEE_GPUS = "see gpus"
_NO_GPU_REMEDY = (
    "measure on a machine with an NVIDIA GPU; recorded traces, reports and perf dumps are read without one; "
    "in a container, pass the GPUs on (docker run --gpus all)"
)


def check_gpus(survey: GpuSurvey, environment: Mapping[str, str] = os.environ) -> Finding:
    """Report the GPUs, the processes that use them, and the idle ones."""
    if not survey.gpus:
        return Finding(
            check="gpus",
            status="missing",
            found="none",
            cause=survey.failure or "the driver lists no GPU",
            remedy=_NO_GPU_REMEDY,
        )
    visible = visible_gpus(survey.gpus, environment)
    idle = [gpu for gpu in visible if gpu.is_idle]
    details = {
        "gpus": [{**asdict(gpu), "is_idle": gpu.is_idle, "in_use": gpu.in_use} for gpu in survey.gpus],
        "visible": [gpu.index for gpu in visible],
        "idle": [gpu.index for gpu in idle],
    }
    found = f"{_names(survey.gpus)}; idle: {_indices(idle)}"
    if not visible and "MIG-" not in environment.get(VISIBLE, ""):
        return Finding(
            check="gpus",
            status="problem",
            found=found,
            cause=f"{VISIBLE}={environment.get(VISIBLE)!r} hides all of them",
            remedy=f"unset {VISIBLE}, or set it to one of {_indices(survey.gpus)}",
            details=details,
        )
    in_use = "; ".join(f"GPU {gpu.index}: {gpu.in_use}" for gpu in visible if not gpu.is_idle)
    if in_use:
        return Finding(
            check="gpus",
            status="warning" if idle else "problem",
            found=found,
            cause=in_use,
            remedy="wait until these processes have ended or end them; a run takes idle GPUs only",
            details=details,
        )
    return Finding(check="gpus", status="ok", found=found, details=details)


def check_driver(survey: GpuSurvey, root: Path = Path("/")) -> Finding:
    """Report the driver, or the reason why it does not answer on a machine with a GPU."""
    if not survey.failure:
        return Finding(
            check="driver",
            status="ok",
            found=f"{survey.driver}, supports CUDA {survey.cuda or 'unknown'}",
            details={"driver": survey.driver, "cuda": survey.cuda},
        )
    traces = _traces_of_a_gpu(root)
    remedies = {
        "library": "pip install nvidia-ml-py",
        "driver": "install NVIDIA's driver; in a container, pass it on: docker run --gpus all, and "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "error": "load the driver's kernel module (modprobe nvidia); after an update of the driver, reboot",
    }
    is_broken = survey.kind == "error" or bool(traces)
    return Finding(
        check="driver",
        status="problem" if is_broken else "missing",
        found=f"no answer, but there is {traces}" if traces else "none",
        cause=survey.failure,
        remedy=remedies[survey.kind] if is_broken or survey.kind == "library" else SEE_GPUS,
    )


def check_cuda(survey: GpuSurvey, torch_cuda: str | None, nvcc: str) -> Finding:
    """Report whether the driver supports the CUDA versions of torch and nvcc: an equal or later major version.

    Args:
        torch_cuda: the CUDA version that torch was built for; "" for a CPU build, None if torch is missing.
        nvcc: its version, or "".
    """
    versions = {"driver": survey.cuda, "torch": torch_cuda or "", "nvcc": nvcc}
    found = ", ".join(f"{name} {version or 'none'}" for name, version in versions.items())
    if not survey.gpus:
        return Finding(
            check="cuda",
            status="missing",
            found=found,
            cause="there is no GPU to use it with",
            remedy=SEE_GPUS,
            details=versions,
        )
    if torch_cuda == "":
        return Finding(
            check="cuda",
            status="problem",
            found=found,
            cause="torch is a build for CPUs and cannot use the GPU",
            remedy="install torch for CUDA: https://pytorch.org/get-started/locally",
            details=versions,
        )
    late = [name for name in ("torch", "nvcc") if _major(versions[name]) > _major(survey.cuda) > 0]
    if late:
        return Finding(
            check="cuda",
            status="problem" if "torch" in late else "warning",
            found=found,
            cause=f"{' and '.join(late)} need a driver for CUDA {max(_major(versions[name]) for name in late)}",
            remedy=f"update the driver {survey.driver}, or use versions for CUDA {_major(survey.cuda)}",
            details=versions,
        )
    return Finding(check="cuda", status="ok", found=found, details=versions)


def _names(gpus: Sequence[Gpu]) -> str:
    counts: dict[str, int] = {}
    for gpu in gpus:
        memory = f" ({gpu.memory_mib / 1024:.0f} GiB)" if gpu.memory_mib else ""
        counts[gpu.name + memory] = counts.get(gpu.name + memory, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _indices(gpus: Sequence[Gpu]) -> str:
    return ", ".join(str(gpu.index) for gpu in gpus) or "none"


def _major(version: str) -> int:
    first = version.partition(".")[0]
    return int(first) if first.isdigit() else 0


def _traces_of_a_gpu(root: Path) -> str:
    """Return the evidence for an NVIDIA GPU on a machine whose driver does not answer, or ""."""
    if next((root / "proc/driver/nvidia/gpus").glob("*"), None):
        return "a GPU in /proc/driver/nvidia/gpus"
    if device := next((root / "dev").glob("nvidia[0-9]*"), None):
        return f"the device file /dev/{device.name}"
    for folder in (root / "sys/bus/pci/devices").glob("*"):
        if _read(folder / "vendor") == NVIDIA and _read(folder / "class").startswith(_DISPLAY):
            return f"an NVIDIA GPU on the PCI bus at {folder.name}"
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
