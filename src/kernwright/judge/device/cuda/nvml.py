"""NVML: identity, clocks, throttle reasons and processes of a GPU, for the record. Verdicts do not depend on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

UNREPORTED = "not reported by this machine"
REASONS = {
    0x1: "idle",
    0x2: "clocks set by an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


class Nvml:
    """The NVML handle of one GPU, found by its UUID because NVML ignores CUDA_VISIBLE_DEVICES."""

    def __init__(self, properties: Any) -> None:
        self._library: Any = None
        self._handle: Any = None
        with contextlib.suppress(Exception):  # without NVML the record says that nothing was reported
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
            self._library = pynvml

    def _ask(self, question: Callable[[Any, Any], Any]) -> Any:
        if self._library is None:
            return UNREPORTED
        try:
            return question(self._library, self._handle)
        except self._library.NVMLError:
            return UNREPORTED

    def identity(self) -> dict[str, Any]:
        return {
            "uuid": self._ask(lambda n, h: n.nvmlDeviceGetUUID(h)),
            "driver": self._ask(lambda n, h: n.nvmlSystemGetDriverVersion()),
            "power_limit_w": self._ask(lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3),
        }

    def state(self) -> dict[str, Any]:
        return {
            "clocks_mhz": self._ask(
                lambda n, h: {
                    "sm": n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
                    "memory": n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
                    "most_sm": n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
                }
            ),
            "throttled_by": self._ask(lambda n, h: reasons(n.nvmlDeviceGetCurrentClocksEventReasons(h))),
            "temperature_c": self._ask(lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)),
            "power_w": self._ask(lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1e3),
            "utilisation_percent": self._ask(lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu),
            "processes": self._ask(lambda n, h: len(n.nvmlDeviceGetComputeRunningProcesses(h))),
        }


def reasons(bits: int) -> list[str]:
    """Return the names of NVML's throttle reasons, without "idle", which is not a reason to throttle."""
    return [name for bit, name in REASONS.items() if bits & bit and name != "idle"]
