"""FLOPs of a launch, from the counters of its instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernwright.diagnose.ncu.bound.profiled_gpu import ProfiledGpu
from kernwright.diagnose.ncu.bound.resource import memory_traffic
from kernwright.diagnose.ncu.report.metric_names import DURATION
from kernwright.diagnose.ncu.report.profiled_kernel import ProfiledKernel
from kernwright.diagnose.roofline.roofline import Roofline, roofline

_INSTRUCTION = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
_CYCLES = "smsp__cycles_elapsed.avg.per_second"
# FLOPs of one instruction of a thread. Instructions on halves work on two values.
_FLOPS = {"fadd": 1, "fmul": 1, "ffma": 2, "hadd": 2, "hmul": 2, "hfma": 4, "dadd": 1, "dmul": 1, "dfma": 2}
_TENSOR = re.compile(r"sm__ops_path_tensor_src_(?P<types>\w+?)(?:_sparsity_(?:on|off))?\.sum")
_TENSOR_BUSY = re.compile(r"sm__(?:inst_executed_)?pipe_tensor\w*\.avg\.pct_of_peak_sustained_active")
UNUSED = 3.0  # percent; a pipe that is less busy runs no matrix product: conversions use it too


@dataclass(frozen=True)
class Flops:
    """FLOPs per second of the SMs' own pipes, and of the matrix units."""

    scalar: float
    tensor: float


def flops_of(kernel: ProfiledKernel) -> Flops | None:
    """Return the FLOPs per second, or None if the report lacks the counters."""
    clock = kernel.value(_CYCLES)
    rates = {name: kernel.value(_INSTRUCTION.format(name)) for name in _FLOPS}
    tensor = _tensor_flops(kernel)
    if clock is None or any(rates[name] is None for name in ("fadd", "fmul", "ffma")) or tensor is None:
        return None
    return Flops(clock * sum(_FLOPS[name] * (rate or 0.0) for name, rate in rates.items()), tensor)


def _tensor_flops(kernel: ProfiledKernel) -> float | None:
    """Return the FLOPs per second of the matrix units. None if they are busy and their FLOPs are not counted."""
    totals: dict[str, float] = {}
    for name, counter in kernel.counters.items():
        if match := _TENSOR.fullmatch(name):  # dense and sparse rates of one type count the same products
            totals[match["types"]] = max(totals.get(match["types"], 0.0), counter.value)
    duration = kernel.value(DURATION)
    if totals and duration:
        return sum(totals.values()) / duration
    busy = [counter.value for name, counter in kernel.counters.items() if _TENSOR_BUSY.fullmatch(name)]
    return 0.0 if busy and max(busy) < UNUSED else None


def roofline_of(kernel: ProfiledKernel, gpu: ProfiledGpu | None) -> Roofline | None:
    """Return the place of a launch under the ceilings of its GPU, or None if FLOPs, bytes or ceilings are not known."""
    flops, traffic = flops_of(kernel), memory_traffic(kernel, gpu)
    if flops is None or traffic is None or gpu is None:
        return None
    ceiling = gpu.tensor_peak if flops.tensor > flops.scalar else gpu.fp32_peak
    if ceiling is None:
        return None
    return roofline(flops.scalar + flops.tensor, traffic.value, gpu.memory_ceiling, ceiling)
