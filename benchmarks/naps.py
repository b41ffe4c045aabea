"""Naps: rows of known duration for a judge on a GPU. A kernel spins for the given time, and another one doubles a small
tensor. Some sides nap longer or fail."""

from __future__ import annotations

import json
from pathlib import Path

NAPS_NS = tuple(round(2000 * 250 ** (step / 47)) for step in range(48))  # from 2 us to 500 us
ALIKE = tuple(f"steady_{number}" for number in range(2, 9))  # sides that do the same as `steady`
AFTER_NAP_NS = 2000  # duration of the kernel after a nap, by which a row takes longer than its name says
LAUNCH_NS = 20_000  # time for launching the two kernels of a call: shorter naps wait for the host
TWENTY_US = min((ns for ns in NAPS_NS), key=lambda ns: abs(ns - 20_000))

DEFINITIONS = '''"""An op whose time is known: the nap is the implementation's affair, the result is twice the input."""

from torch import Tensor

from kernwright.core.op import define


@define(outputs=["y"], activations=["x"])
def nap(x: Tensor, *, ns: int = 1000) -> Tensor:
    """2 x"""
    return x * 2
'''
BASELINES = '''"""Sides that nap for as long as the row says, or a known share longer."""
import torch

CYCLES_PER_NS = 1.98


def _napping(factor, more_ns=0.0):
    def run(x, *, ns):
        torch.cuda._sleep(int((ns * factor + more_ns) * CYCLES_PER_NS))
        return x * 2

    return run


def steady(op):
    return _napping(1.0)


def half_again(op):
    return _napping(1.5)
'''
BASELINES += "".join(f"\n\ndef {name}(op):\n    return steady(op)\n" for name in ALIKE)
TASK = """
name = "naps"
title = "Kernels of known duration"
origin = "made up for the benchmark of the judge"
definitions = "definitions.py"

[tolerance]
fp32 = {{ atol = 1e-6, rtol = 1e-6 }}

[timing]
decides = "{decides}"
{more}"""


def write_task(folder: Path, decides: str, more: str = "") -> Path:
    """Write the task. `more` has further lines for its timing policy."""
    place = folder / f"naps_{decides}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "task.toml").write_text(TASK.format(decides=decides, more=more))
    (place / "definitions.py").write_text(DEFINITIONS)
    (place / "baselines.py").write_text(BASELINES)
    tensor = {"shape": ["N"], "dtype": "fp32"}
    rows = [
        {
            "id": f"nap_{ns}ns", "op": "nap", "set": "production", "axes": {"N": 16384}, "inputs": {"x": tensor},
            "outputs": {"y": tensor}, "scalars": {"ns": ns}, "bytes_min": 2 * 4 * 16384,
        }
        for ns in NAPS_NS
    ]  # fmt: skip
    (place / "workloads.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return place


def write_candidate(folder: Path, name: str, source: str) -> Path:
    place = folder / "candidates" / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "candidate.toml").write_text('op = "nap"\nlanguage = "python"\nentry = "kernel.py:nap"\n')
    (place / "kernel.py").write_text(source)
    return place


def napping(folder: Path, name: str, factor: float, more_ns: float) -> Path:
    source = BASELINES + f"\n\nnap = _napping({factor}, {more_ns})\n"
    return write_candidate(folder, name, source)


def naps_between(least_us: float, most_us: float, every: int = 1) -> str:
    """Return the rows with naps in a range, as the pattern of a judgement."""
    return ",".join(f"nap_{ns}ns" for ns in NAPS_NS[::every] if least_us <= ns / 1e3 < most_us)


FAULTS = {
    "illegal address": """
import torch
import triton
import triton.language as tl


@triton.jit
def _stray(y, far):
    tl.store(y + far, 1.0)


def nap(x, *, ns):
    y = torch.empty_like(x)
    _stray[(1,)](y, 2**44)
    return y
""",
    "hang": """
import torch


def nap(x, *, ns):
    y = x * 2  # before it: a kernel's first launch loads it, and waits for the device to do so
    torch.cuda._sleep(10**15)
    return y
""",
    "out of memory": """
import torch


def nap(x, *, ns):
    hoard = []
    while True:
        hoard.append(torch.empty(2**31, dtype=torch.uint8, device=x.device))
""",
}
