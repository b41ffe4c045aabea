"""The census on a CPU: the operators of torch that a call uses."""

from __future__ import annotations

import torch

from kernwright.judge.worker.worker_device import CpuWorkerDevice


def test_a_census_on_a_cpu_counts_the_operators_of_a_call() -> None:
    found = CpuWorkerDevice().census(lambda slot: (slot[0] + 1).mean() + 1, [torch.ones(2, 2)], "op", source="profiler")
    assert {kernel.name: kernel.count for kernel in found.kernels} == {"aten::add": 2, "aten::mean": 1}
