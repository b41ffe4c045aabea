"""Selection of a device by its name."""

from __future__ import annotations

import re

from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.device.device import Device


def find_device(name: str) -> Device:
    """Return the device named `cpu`, `cuda` or `cuda:N`."""
    if name == "cpu":
        return CpuDevice()
    refuse_device(name)
    from kernwright.judge.device.cuda.device import CudaDevice

    return CudaDevice(name)


def refuse_device(name: str) -> None:
    """Raise EnvironmentProblem if a name is not that of a device. This machine need not have it."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise EnvironmentProblem(f"{name!r} is not a device", "use cpu, cuda or cuda:N")
