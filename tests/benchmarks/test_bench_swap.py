"""The saving of a swap, predicted and measured, as far as it can be tested without a GPU."""

from __future__ import annotations

import argparse
import copy
import importlib
from pathlib import Path

import pytest
import torch
from made_trace import MadeTrace

import kernwright
from kernwright.diagnose.compare.label_runs import LabelRuns
from kernwright.diagnose.perf_dump.dump import PerfDump, StepTime
from kernwright.diagnose.perf_dump.provenance import RunProvenance
from kernwright.diagnose.trace.trace import read_trace

CHAIN = {"aten::layer_norm": 40.0, "aten::add": 2.0, "aten::mul": 30.0, "aten::add_": 31.0}
SHAPES = {"Input Dims": [[1, 8, 4], [1, 1, 4]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}


def add_chain(trace: MadeTrace, start: float) -> float:
    """Add the eager chain of one call, behind a GEMM. Return the time after it."""
    for name, taken in {"aten::linear": 500.0, **CHAIN}.items():
        shapes = {"Input Dims": [[1, 1, 4], []]} if name == "aten::add" else SHAPES
        trace.range("cpu_op", name, start, start + 8, **shapes)
        trace.kernel(f"{name} kernel", start + 5, taken, start + 1)
        start += 600
    return start


def test_the_prediction_counts_chains_in_the_replaced_functions_only(tmp_path: Path) -> None:
    bench = importlib.import_module("bench_swap")
    trace = MadeTrace()
    begin, time = 0.0, 10.0
    for name in ("chain", "other", "chain"):  # the second one is inline code, which no swap replaces
        time = add_chain(trace, begin := time + 10)
        trace.range("user_annotation", name, begin - 1, time)
    for number in range(bench.OP_CALLS):
        begin = time + 100 * (number + 1)
        trace.kernel("norm_scale_shift kernel", begin + 9, 20.0, begin + 1, call="cuLaunchKernelEx")
        trace.range("user_annotation", "op 2", begin, begin + 10)
    chains, op = bench.predicted_saving_ms(read_trace(trace.write(tmp_path / "trace.json")))
    assert chains == pytest.approx(2 * sum(CHAIN.values()) / 1e3)
    assert op == pytest.approx(2 * 20.0 / 1e3), "two calls of this shape in a step"


def test_the_measured_saving_is_taken_turn_by_turn() -> None:
    bench = importlib.import_module("bench_swap")

    def side(name: str, steps: list[float]) -> LabelRuns:
        dumps = [
            PerfDump(
                denoise_steps_ms=[StepTime(step=at, duration_ms=taken) for at in range(3)],
                kernwright=RunProvenance(series="s", turn=turn),
            )
            for turn, taken in enumerate(steps)
        ]
        return LabelRuns(name, (), tuple(dumps))

    step, savings = bench.measured_saving_ms(side("base", [10.0, 12.0]), side("swap", [9.0, 10.5]))
    assert (step, savings) == (11.0, [1.0, 1.5])


def test_the_adapters_compute_what_diffusers_computes() -> None:
    pytest.importorskip("diffusers")
    blocks_module, adapters = (importlib.import_module(name) for name in ("flux_blocks", "flux_adapters"))
    blocks = blocks_module.Blocks(argparse.Namespace(tiny=True, layers=1, single_layers=1))
    replaced = copy.deepcopy(blocks.model)
    functions = [adapters.zero, adapters.single, adapters.continuous]
    count = 0
    for module in replaced.modules():
        for kind, function in zip(blocks_module.NORMS, functions, strict=True):
            if type(module) is kind:
                module.forward = function.__get__(module)
                count += 1
    assert count == 4, "two of the double block, one of the single block, the last one"
    with torch.no_grad(), kernwright.preferring("torch"):  # no kernel is built for this
        expected = blocks.step()
        blocks.model = replaced
        torch.testing.assert_close(blocks.step(), expected, atol=0.05, rtol=0.05)
        torch.nn.init.constant_(replaced.norm_out.linear.bias, 1.0)
        assert not torch.allclose(blocks.step(), expected, atol=0.05, rtol=0.05)
