"""GPU models: the table of rates and limits of each GPU, and the lookup of a model by its name.

`gpus.toml` is the one source of these numbers. For a name that the table does not have, the result is None: a guess
would put a kernel at the wrong place of the roofline.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

GIGA = 1e9
WARP_THREADS = 32
SCHEDULERS = 4  # per SM; each issues at most one instruction per cycle
REGISTERS_PER_SM = 65536
MOST_REGISTERS = 255  # per thread
REGISTER_UNIT = 256  # registers of a warp are allocated in this unit
MOST_BLOCK_THREADS = 1024
COPY_SHARE = 0.9  # share of the data sheet's bandwidth that a copy reaches, where it was not measured; H200: 0.89


@dataclass(frozen=True, kw_only=True)
class SmLimits:
    """The limits of one SM of a compute capability, and its rates per cycle."""

    capability: str
    warps: int
    blocks: int
    shared_memory: int  # bytes per SM
    shared_memory_block: int  # bytes that one block may have
    shared_memory_unit: int
    shared_memory_reserved: int
    fp32_lanes: int
    tensor_half_flops: int


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """One GPU model. Rates are per second, sizes in bytes."""

    title: str
    name: re.Pattern[str]
    limits: SmLimits
    sms: int
    clock_hz: float
    bandwidth: float  # data sheet, bytes per second
    copy_bandwidth: float | None  # measured device-to-device copy, bytes read plus written per second
    copy_from: str | None
    l2_bytes: int
    tensor_half_flops: int

    @property
    def memory_ceiling(self) -> float:
        """Return the bytes per second that a kernel can reach: those of a copy, measured or assumed."""
        return self.copy_bandwidth or COPY_SHARE * self.bandwidth

    @property
    def ceiling_source(self) -> str:
        """Return the source of the memory ceiling, to be shown next to figures that depend on it."""
        if self.copy_bandwidth:
            return f"copy measured on {self.title}"
        return f"{COPY_SHARE:.0%} of the data sheet's bandwidth of {self.title}"

    @property
    def fp32_peak(self) -> float:
        """Return the FLOPs per second of fused multiply-adds in fp32, outside the tensor cores."""
        return 2.0 * self.limits.fp32_lanes * self.sms * self.clock_hz

    @property
    def tensor_peak(self) -> float:
        """Return the FLOPs per second of dense fp16 or bf16 matrix multiplication, accumulated in fp32."""
        return float(self.tensor_half_flops) * self.sms * self.clock_hz


@cache
def sm_limits() -> dict[str, SmLimits]:
    """Return the limits of an SM by compute capability, such as "9.0"."""
    return {entry["version"]: _limits(entry) for entry in _table()["capability"]}


@cache
def gpu_models() -> tuple[GpuModel, ...]:
    """Return the GPU models of the table."""
    return tuple(_model(entry) for entry in _table()["gpu"])


def gpu_named(name: str) -> GpuModel | None:
    """Return the model with the name that a driver, a trace or a report has, or None if the table does not have it.

    The whole name must match. A slice of a GPU (MIG), a laptop's GPU or a GPU with a longer name has other limits.
    """
    plain = re.sub("^NVIDIA ", "", " ".join(name.split()), flags=re.IGNORECASE)
    return next((model for model in gpu_models() if model.name.fullmatch(plain)), None)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("kernwright.diagnose.roofline").joinpath("gpus.toml").read_text(encoding="utf-8"))


def _limits(entry: dict[str, Any]) -> SmLimits:
    return SmLimits(
        capability=entry["version"],
        warps=entry["warps"],
        blocks=entry["blocks"],
        shared_memory=entry["shared_memory_kib"] * 1024,
        shared_memory_block=entry["shared_memory_block_kib"] * 1024,
        shared_memory_unit=entry["shared_memory_unit"],
        shared_memory_reserved=entry["shared_memory_reserved"],
        fp32_lanes=entry["fp32_lanes"],
        tensor_half_flops=entry["tensor_half_flops"],
    )


def _model(entry: dict[str, Any]) -> GpuModel:
    limits = sm_limits()[entry["capability"]]
    return GpuModel(
        title=entry["title"],
        name=re.compile(entry["name"], re.IGNORECASE),
        limits=limits,
        sms=entry["sms"],
        clock_hz=entry["clock_mhz"] * 1e6,
        bandwidth=entry["bandwidth"] * GIGA,
        copy_bandwidth=entry["copy"] * GIGA if "copy" in entry else None,
        copy_from=entry.get("copy_from"),
        l2_bytes=entry["l2_kib"] * 1024,
        tensor_half_flops=entry.get("tensor_half_flops", limits.tensor_half_flops),
    )
