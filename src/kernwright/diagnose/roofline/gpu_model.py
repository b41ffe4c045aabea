"""GPU models: the table of rates and limits of each GPU, and the lookup of a model by its name.

`gpus.toml` is the one source of these numbers, and names the source of each of them. For a name that the table does not
have, the result is None: a guess would put a kernel at the wrong place of the roofline.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

GIGA = 1e9

SourceKind = Literal["datasheet", "reported", "measured", "assumed"]


@dataclass(frozen=True, kw_only=True)
class FigureSource:
    """The source of a figure.

    Attributes:
        kind: a document of the vendor, attributes that a driver reports, a measurement, or an assumption.
        record: the run or the generated file of this project that holds the figure.
    """

    kind: SourceKind
    title: str
    version: str
    date: str
    url: str | None = None
    record: str | None = None


@dataclass(frozen=True, kw_only=True)
class CommonLimits:
    """The limits that all capabilities of the table have in common, and what is assumed where nothing was measured.

    Attributes:
        registers: registers of 32 bits per SM.
        schedulers: schedulers of an SM; each issues at most one instruction per cycle.
        copy_share: share of the data sheet's bandwidth that a copy reaches.
        host_launch_s: time of a call of an op in C++ on the host of an H200, back to back.
    """

    warp_threads: int
    schedulers: int
    registers: int
    registers_thread: int
    register_unit: int
    block_threads: int
    copy_share: float
    host_launch_s: float
    sources: Mapping[str, FigureSource]


@dataclass(frozen=True, kw_only=True)
class SmLimits:
    """The limits of one SM of a compute capability, and its rates per cycle. `sources` names the source of each."""

    capability: str
    arch: str
    generation: str
    warps: int
    blocks: int
    shared_memory: int  # bytes per SM
    shared_memory_block: int  # bytes that one block may have
    shared_memory_unit: int
    shared_memory_reserved: int
    l1: int  # bytes of L1 cache and shared memory together
    fp32_lanes: int
    tensor_half_flops: int
    instructions: tuple[str, ...]
    sources: Mapping[str, FigureSource]


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """One GPU model. Rates are per second, sizes in bytes. `sources` has the source of each figure."""

    title: str
    name: re.Pattern[str]
    limits: SmLimits
    sms: int
    clock_hz: float
    memory: str
    bandwidth: float  # bytes per second
    copy_bandwidth: float | None  # measured device-to-device copy, bytes read plus written per second
    l2_bytes: int
    tensor_half_flops: int
    sources: Mapping[str, FigureSource]

    @property
    def memory_ceiling(self) -> float:
        """Return the bytes per second that a kernel can reach: those of a copy, measured or assumed."""
        return self.copy_bandwidth or common_limits().copy_share * self.bandwidth

    @property
    def ceiling_source(self) -> str:
        """Return the source of the memory ceiling, to be shown next to figures that depend on it."""
        if self.copy_bandwidth:
            return f"copy measured on {self.title}"
        return f"{common_limits().copy_share:.0%} of the data sheet's bandwidth of {self.title}"

    @property
    def fp32_peak(self) -> float:
        """Return the FLOPs per second of fused multiply-adds in fp32, outside the tensor cores."""
        return 2.0 * self.limits.fp32_lanes * self.sms * self.clock_hz

    @property
    def tensor_peak(self) -> float:
        """Return the FLOPs per second of dense fp16 or bf16 matrix multiplication, accumulated in fp32."""
        return float(self.tensor_half_flops) * self.sms * self.clock_hz


@cache
def common_limits() -> CommonLimits:
    """Return the limits that all capabilities have in common."""
    entry = _table()["common"]
    return CommonLimits(
        warp_threads=entry["warp_threads"],
        schedulers=entry["schedulers"],
        registers=entry["registers"],
        registers_thread=entry["registers_thread"],
        register_unit=entry["register_unit"],
        block_threads=entry["block_threads"],
        copy_share=entry["copy_share"],
        host_launch_s=entry["host_launch_us"] / 1e6,
        sources=_sources_of(entry),
    )


@cache
def sm_limits() -> dict[str, SmLimits]:
    """Return the limits of an SM by compute capability, such as "9.0"."""
    return {entry["version"]: _limits(entry) for entry in _table()["capability"]}


@cache
def gpu_models() -> tuple[GpuModel, ...]:
    """Return the GPU models of the table."""
    return tuple(_model(entry) for entry in _table()["gpu"])


@cache
def figure_sources() -> dict[str, FigureSource]:
    """Return the sources of the figures by name."""
    return {name: FigureSource(**entry) for name, entry in _table()["source"].items()}


def gpu_named(name: str) -> GpuModel | None:
    """Return the model with the name that a driver, a trace or a report has, or None if the table does not have it.

    The whole name must match. A slice of a GPU (MIG), a laptop's GPU or a GPU with a longer name has other limits.
    """
    plain = re.sub("^NVIDIA ", "", " ".join(name.split()), flags=re.IGNORECASE)
    return next((model for model in gpu_models() if model.name.fullmatch(plain)), None)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("kernwright.diagnose.roofline").joinpath("gpus.toml").read_text(encoding="utf-8"))


def _sources_of(entry: dict[str, Any]) -> dict[str, FigureSource]:
    """Return the source of each figure of an entry."""
    own = entry.get("sources", {})
    figures = [name for name in entry if name not in ("source", "sources", "name", "title")]
    return {name: figure_sources()[own.get(name, entry["source"])] for name in figures}


def _limits(entry: dict[str, Any]) -> SmLimits:
    return SmLimits(
        capability=entry["version"],
        arch=entry["arch"],
        generation=entry["generation"],
        warps=entry["warps"],
        blocks=entry["blocks"],
        shared_memory=entry["shared_memory_kib"] * 1024,
        shared_memory_block=entry["shared_memory_block_kib"] * 1024,
        shared_memory_unit=entry["shared_memory_unit"],
        shared_memory_reserved=entry["shared_memory_reserved"],
        l1=entry["l1_kib"] * 1024,
        fp32_lanes=entry["fp32_lanes"],
        tensor_half_flops=entry["tensor_half_flops"],
        instructions=tuple(entry["instructions"]),
        sources=_sources_of(entry),
    )


def _model(entry: dict[str, Any]) -> GpuModel:
    limits = sm_limits()[entry["capability"]]
    return GpuModel(
        title=entry["title"],
        name=re.compile(entry["name"], re.IGNORECASE),
        limits=limits,
        sms=entry["sms"],
        clock_hz=entry["clock_mhz"] * 1e6,
        memory=entry["memory"],
        bandwidth=entry["bandwidth"] * GIGA,
        copy_bandwidth=entry["copy"] * GIGA if "copy" in entry else None,
        l2_bytes=entry["l2_kib"] * 1024,
        tensor_half_flops=entry.get("tensor_half_flops", limits.tensor_half_flops),
        sources=_sources_of(entry),
    )
