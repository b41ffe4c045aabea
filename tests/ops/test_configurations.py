"""Every Triton kernel uses the configuration that `kernwright explain` names, runs with any, and compiles."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from compiled_kernels import Recorded, ptx_of
from interpreter_server import run_interpreted

from kernwright.campaign.tuning.trial import blank_call, triton_of
from kernwright.ops import FAMILIES
from kernwright.ops.catalog import dispatcher
from kernwright.runtime.triton import tuning
from kernwright.runtime.triton.configurations import KERNELS, SHARED, Configuration, Situation, of_tiles
from kernwright.tasks.catalog import find_task, list_tasks

pytest.importorskip("triton")
META = torch.device("meta")


@cache
def rows() -> dict[str, Any]:
    """Return a production row of every op that has configurations."""
    own = [row for name in list_tasks() for row in find_task(name).rows if row.set == "production"]
    return {row.op: row for row in own if row.op in {*KERNELS, *SHARED}}


def test_every_op_with_configurations_has_rows() -> None:
    assert set(rows()) == {*KERNELS, *SHARED} <= set(FAMILIES)


@pytest.mark.parametrize("op", [*KERNELS, *SHARED])
def test_a_launch_asks_for_what_explain_names(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernwright.ops.ltx2_modulate import triton as ltx2
    from kernwright.ops.modulation import triton as modulation
    from kernwright.ops.norm_modulation import triton as norm_modulation
    from kernwright.ops.norm_tanh import triton as norm_tanh
    from kernwright.ops.plain_norm import triton as plain_norm
    from kernwright.ops.residual_norm import triton as residual_norm

    kernels = {ltx2: "rms_modulated", modulation: "modulate", norm_modulation: "norm_modulate"}
    kernels |= {norm_tanh: "gated_norm", plain_norm: "norm_rows", residual_norm: "add_norm_rows"}
    for module, kernel in kernels.items():
        monkeypatch.setattr(module, kernel, Recorded())
    asked: list[Situation] = []

    def look(name: str, width: int, element_bytes: int, is_few: bool, device: torch.device) -> tuning.Found:
        asked.append(Situation(name, width, element_bytes, is_few))
        return tuning.Found(asked[-1].default, "default")

    monkeypatch.setattr(tuning, "looked_up", look)
    call = blank_call(rows()[op], META)
    own = triton_of(call.op)
    assert own is not None
    tensors, scalars = call.parts
    own.function(*tensors, **scalars)
    assert asked == [tuning.situation_of(call)]


def test_explain_names_the_source_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    x = torch.zeros(2, 3, 96)
    told = str(dispatcher("norm_scale_shift").explain(x, x[0, 0], x[0, 0]))
    assert "triton (close): takes it, 8 x 128 by 4 warps (default)" in told
    monkeypatch.delenv("TRITON_INTERPRET")
    told = str(dispatcher("norm_scale_shift").explain(x, x[0, 0], x[0, 0]))
    assert "triton (close): x is on cpu\n" in told


UNUSUAL = """
import torch
from interpreted_cases import patch_once
from kernwright.campaign.tuning.trial import TuningTrial, Work, blank_call
from kernwright.judge.worker.triton_interpreter import compute_bfloat16_like_gpu
from kernwright.runtime.triton.configurations import Configuration
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.triton.tuning import situation_of
from kernwright.tasks.catalog import find_task

patch_once()
compute_bfloat16_like_gpu()
for name, op in [
    ("norm_scale_shift", "residual_norm_scale_shift"),
    ("norm_tanh_mul_add", "norm_tanh_mul_add_norm_scale"),
    ("ltx2_dual_modulate", "dual_modulate_from_table"),
]:
    task = find_task(name)
    row = next(row for row in task.rows if row.op == op and row.set == "smoke").resized({"S": 5, "D": 72})
    situation = situation_of(blank_call(row, torch.device("meta")))
    trial = TuningTrial(Work(situation, task, row), torch.device("cpu"))
    for unusual in [Configuration(2, 32, 1), Configuration(8, 128, 2)]:
        assert trial.problem(unusual) is None, (op, unusual, trial.problem(unusual))
    trial._own = Implementation("triton", "close", lambda: lambda *given, **named: None)
    assert "NaN" in trial.problem(situation.default), op
print("all right")
"""


def test_any_configuration_gives_a_right_result_and_a_wrong_one_is_noticed() -> None:
    assert run_interpreted(UNUSUAL).strip().endswith("all right")


def shipped_shapes() -> list[tuple[bool, Configuration, int]]:
    """Return every shipped configuration once, with a width at which it was measured, and two unusual ones."""
    tables = [tuning.TuningTable.read(path) for path in sorted(tuning.SHIPPED.glob("*.json"))]
    own = {
        (KERNELS[entry.op] is of_tiles, entry.configuration): entry.width for table in tables for entry in table.entries
    }
    unusual = {(False, Configuration(2, 512, 2)): 3072, (True, Configuration(1, 64, 8)): 96}
    return [(tiles, configuration, width) for (tiles, configuration), width in {**own, **unusual}.items()]


@pytest.mark.parametrize(("tiles", "configuration", "width"), shipped_shapes())
def test_shipped_configurations_compile_for_an_h200_without_one(
    tiles: bool, configuration: Configuration, width: int
) -> None:
    from kernwright.ops.modulation import triton as elementwise
    from kernwright.ops.plain_norm import triton as norms

    x, row = torch.zeros(1, 64, width, dtype=torch.bfloat16), torch.zeros(width, dtype=torch.bfloat16)
    with tuning.trying(configuration):
        if tiles:
            ptx = ptx_of(elementwise, "modulate", lambda: elementwise.scale_shift(x, row, row))
        else:
            ptx = ptx_of(norms, "norm_rows", lambda: norms.rms_norm(x, row))
    assert ".target sm_90" in ptx and f".reqntid {32 * configuration.warps}" in ptx.replace(", 1, 1", "")
