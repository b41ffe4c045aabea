"""ProfiledGpu: the ceilings of the GPU of a report, from the table of GPUs or from the report itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernwright.diagnose.ncu.report.metric_names import DRAM_RATE, DRAM_SHARE, SMS
from kernwright.diagnose.ncu.report.profiled_kernel import ProfiledKernel
from kernwright.diagnose.roofline.gpu_model import GpuModel, common_limits, gpu_models, gpu_named

L2_SIZE = "device__attribute_l2_cache_size"
LEAST_SHARE = 5.0  # percent of the peak from which rate and share give the peak precisely enough
SAME_PEAK = 0.05  # relative difference up to which a peak is that of a model


@dataclass(frozen=True, kw_only=True)
class ProfiledGpu:
    """The ceilings of the GPU that a kernel ran on."""

    title: str
    memory_peak: float  # bytes per second, data sheet
    memory_ceiling: float  # bytes per second that a copy reaches
    ceiling_source: str
    l2_bytes: float | None
    fp32_peak: float | None  # FLOPs per second
    tensor_peak: float | None
    clock_hz: float | None


def gpu_of(kernel: ProfiledKernel, report: Sequence[ProfiledKernel], named: GpuModel | None) -> ProfiledGpu | None:
    """Return the GPU of a kernel, or None if the report does not identify it.

    Args:
        report: all kernels of the report; another kernel may have the counters that identify the GPU.
        named: the model that the user named, if any.
    """
    model = named or (gpu_named(kernel.device) if kernel.device else None)
    peak = _memory_peak(kernel, report)
    if model is None and kernel.device is None and peak is not None:
        model = _model_with(kernel, peak)
    if model is not None:
        return _from_table(model)
    return _from_report(kernel, peak) if peak is not None else None


def _from_table(model: GpuModel) -> ProfiledGpu:
    return ProfiledGpu(
        title=model.title,
        memory_peak=model.bandwidth,
        memory_ceiling=model.memory_ceiling,
        ceiling_source=model.ceiling_source,
        l2_bytes=model.l2_bytes,
        fp32_peak=model.fp32_peak,
        tensor_peak=model.tensor_peak,
        clock_hz=model.clock_hz,
    )


def _from_report(kernel: ProfiledKernel, peak: float) -> ProfiledGpu:
    return ProfiledGpu(
        title=kernel.device or f"GPU of compute capability {kernel.capability or 'unknown'}",
        memory_peak=peak,
        memory_ceiling=common_limits().copy_share * peak,
        ceiling_source=f"{common_limits().copy_share:.0%} of the peak that the report's counters imply",
        l2_bytes=kernel.value(L2_SIZE),
        fp32_peak=None,
        tensor_peak=None,
        clock_hz=None,
    )


def _memory_peak(kernel: ProfiledKernel, report: Sequence[ProfiledKernel]) -> float | None:
    """Return the peak memory bandwidth that rate and share of the kernel, or of another one on its GPU, imply."""
    alike = [other for other in report if _identity(other) == _identity(kernel)]
    shares = {other.number: other.value(DRAM_SHARE) or 0.0 for other in alike if other.value(DRAM_RATE)}
    number, share = max(shares.items(), key=lambda item: item[1], default=(None, 0.0))
    if number is None or not LEAST_SHARE <= share <= 100:
        return None
    rate = next(other.value(DRAM_RATE) for other in alike if other.number == number)
    return rate / (share / 100) if rate else None


def _identity(kernel: ProfiledKernel) -> tuple[str | None, str | None, float | None]:
    return kernel.device, kernel.capability, kernel.value(SMS)


def _model_with(kernel: ProfiledKernel, peak: float) -> GpuModel | None:
    """Return the only model with this compute capability, number of SMs and peak bandwidth."""
    fitting = [
        model
        for model in gpu_models()
        if model.limits.capability == kernel.capability
        and model.sms == kernel.value(SMS)
        and abs(peak / model.bandwidth - 1) <= SAME_PEAK
    ]
    return fitting[0] if len(fitting) == 1 else None
