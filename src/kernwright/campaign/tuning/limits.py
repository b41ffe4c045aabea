"""Limits: the reasons why a configuration is not judged: the hardware cannot run it, or it spills registers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from kernwright.campaign.tuning.machine_code import KernelReport, MachineCode
from kernwright.campaign.tuning.space import Configuration, Space
from kernwright.core.errors import KernwrightError
from kernwright.diagnose.roofline.gpu_model import SmLimits, common_limits, sm_limits
from kernwright.diagnose.roofline.occupancy import occupancy

ARCHITECTURE_WITHOUT_GPU = "sm_90"


@dataclass(frozen=True)
class HardwareLimits:
    """The limits of one GPU. They are None for a CPU."""

    sm: SmLimits | None

    def problem_before(self, space: Space, configuration: Configuration) -> str | None:
        """Return why a configuration cannot be good, from its formulas alone."""
        if self.sm is None:
            return None
        try:
            asked, common = space.asked(configuration), common_limits()
        except ValueError as error:
            return str(error)
        if (threads := asked.get("threads", common.warp_threads)) > common.block_threads or threads < 1:
            return f"{threads} threads a block; a block has 1 to {common.block_threads}"
        if (held := asked.get("values_per_thread", 0)) > common.registers_thread:
            return f"{held} values a thread; a thread has {common.registers_thread} registers"
        if (shared := asked.get("shared_bytes", 0)) > self.sm.shared_memory_block:
            return f"{shared} bytes of shared memory a block; a block has {self.sm.shared_memory_block}"
        return None

    def problem_after(self, space: Space, configuration: Configuration, code: MachineCode) -> str | None:
        """Return why a compiled configuration cannot be good: it spills registers, or no block of it fits on an SM."""
        if self.sm is None:
            return None
        asked = space.asked(configuration)
        for kernel in code.kernels:
            if kernel.spill_stores or kernel.spill_loads:
                return f"spills {kernel.spill_stores + kernel.spill_loads} bytes of registers in {kernel.name}"
            if why := self._misfit(kernel, asked):
                return why
        return None

    def _misfit(self, kernel: KernelReport, asked: Mapping[str, int]) -> str | None:
        assert self.sm is not None
        if "threads" not in asked:
            return None
        shared = kernel.shared_bytes + asked.get("shared_bytes", 0)
        try:
            found = occupancy(self.sm, asked["threads"], kernel.registers, shared)
        except KernwrightError as error:
            return error.cause
        if found.blocks == 0:
            return (
                f"no block fits on an SM: {asked['threads']} threads with {kernel.registers} registers each and "
                f"{shared} bytes of shared memory"
            )
        return None


def gpu_architecture(device: str) -> str | None:
    """Return the architecture of a GPU of this machine, such as sm_90; None without one."""
    number = device.partition(":")[2] or "0"
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--id={number}", "--query-gpu=compute_cap", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = done.stdout.strip()
    return f"sm_{found.replace('.', '')}" if done.returncode == 0 and found else None


def limits_of(architecture: str | None) -> HardwareLimits:
    """Return the limits of an architecture; none if the table of GPUs does not have it."""
    if architecture is None:
        return HardwareLimits(None)
    digits = architecture.removeprefix("sm_")
    return HardwareLimits(sm_limits().get(f"{digits[:-1]}.{digits[-1]}"))
