"""Kernwright's own ops: one record per public call, however it runs, and records for callers of the eager chain."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import pytest

import kernwright.ops
from kernwright.capture.own_ops import op_of, places_of, target_of
from kernwright.core.op import Op
from kernwright.runtime.target import compiler

Capturing = Callable[..., Any]
NORM = "kernwright.ops:norm_scale_shift"
SCRIPT = """
import pickle
import torch
import kernwright
from kernwright import nn, ops
from kernwright.ops.norm_modulation.definition import norm_scale_shift as definition

x, rows = torch.ones(1, 3, 64), (torch.ones(1, 64), torch.ones(1, 64))
ops.norm_scale_shift(x, *rows, backend="cpu")
ops.norm_scale_shift(x, *rows, backend="cpu")  # the short way, straight to the kernel
ops.norm_scale_shift(x, *rows, backend="torch", eps=1e-5)
ops.norm_scale_shift(torch.nn.Parameter(x), *rows, eps=1e-4).sum().backward()  # the chain, inside the public call
ops.norm_scale_shift(x, *rows, eps=1e-3)
nn.LayerNormScaleShift(64, eps=1e-2)(x, *rows)
definition.reference(x, *rows, eps=1e-1)
ops.rotary(torch.ones(1, 3, 2, 64), torch.ones(3, 32), torch.ones(3, 32))
for _ in range(2):
    try: ops.norm_scale_shift(x, *rows, eps="small")
    except ValueError: pass
print(pickle.loads(pickle.dumps(ops.norm_scale_shift)) is ops.norm_scale_shift)
print(kernwright.explain(ops.norm_scale_shift, x, *rows, backend="torch").chosen)
"""


def by_eps(run: Any) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for call in run.capture.of(NORM):
        eps = call.values()["eps"].value
        found[eps] = found.get(eps, 0) + call.count
    return found


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_a_public_call_is_recorded_once_however_it_runs(capture: Capturing) -> None:
    run = capture(SCRIPT, "norm_scale_shift", "kernwright.ops:rotary")
    assert run.done.returncode == 0, run.done.stderr
    assert run.done.stdout == "True\ntorch (exact)\n"
    assert by_eps(run) == {1e-6: 2, 1e-5: 1, 1e-4: 1, 1e-3: 1, 1e-2: 1, 1e-1: 1, "small": 2}
    assert {call.raised for call in run.capture.of(NORM)} == {None, "BadArgument"}
    assert run.capture.counts == {"kernwright.ops:rotary": 1, NORM: 9}
    assert "problem" not in run.done.stderr and run.capture.header.problems == ()


FALLBACKS_AND_GRAPH = """
import torch
from kernwright import nn, ops
from kernwright.ops import norm_scale_shift

row = torch.ones(8)
ops.scale_shift(torch.ones(1, 3, 8), row, row)  # an op's line
with torch.no_grad(): nn.RMSNorm(8)(row)  # a module's line
for _ in range(3): norm_scale_shift(torch.ones(1, 3, 64), torch.ones(64), torch.ones(64))

def model(x): return ops.norm_scale_shift(x, row, row)
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
for _ in range(3): compiled(torch.ones(1, 3, 8))
model(torch.ones(1, 4, 8))
"""


@pytest.fixture(scope="module")
def several(capture_in: Callable[..., Capturing], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Capture several calls in one program, because the import of torch takes seconds."""
    capture = capture_in(tmp_path_factory.mktemp("several"), dict(os.environ))
    targets = ("kernwright.ops:scale_shift", "kernwright.ops:rms_norm", NORM, "kernwright::norm_scale_shift")
    run = capture(FALLBACKS_AND_GRAPH, *targets)
    assert run.done.returncode == 0, run.done.stderr
    return run


def test_the_documented_name_is_the_op_and_a_fallback_warning_names_the_programs_own_line(several: Any) -> None:
    said = [line.strip() for line in several.done.stderr.splitlines() if "Fallback" in line or "'s line" in line]
    assert ["Fallback: scale_shift" in said[0], "op's line" in said[1]] == [True, True], said
    assert ["Fallback: rms_norm" in said[2], "module's line" in said[3]] == [True, True], said
    (call,) = [call for call in several.capture.of(NORM) if call.values()["x"].shape == (1, 3, 64)]
    assert (call.call, call.count) == (NORM, 3)
    names = ["x", "scale", "shift", "weight", "bias", "norm_type", "eps", "backend", "contract", "out"]
    assert [argument.name for argument in call.arguments] == names


def test_compiled_code_is_recorded_too_and_keeps_its_graph_whole(several: Any) -> None:
    def counts(target: str) -> dict[tuple[int, ...], int]:
        return {call.values()["x"].shape: call.count for call in several.capture.of(target)}

    assert counts(NORM) == {(1, 3, 64): 3, (1, 3, 8): 3, (1, 4, 8): 1}
    assert counts("torch.ops.kernwright:norm_scale_shift") == {(1, 3, 8): 3}


def test_without_a_name_every_op_is_recorded_and_this_is_reported(capture: Capturing) -> None:
    run = capture(
        "import torch\nfrom kernwright import ops\n"
        "ops.rms_norm(torch.ones(2, 8)); ops.copy_contiguous(torch.ones(2, 8)); ops.copy_contiguous(torch.ones(2, 8))\n"
    )
    assert run.done.returncode == 0, run.done.stderr
    called = {target: count for target, count in run.capture.counts.items() if count}
    assert called == {"kernwright.ops:copy_contiguous": 2, "kernwright.ops:rms_norm": 1}
    ours = [line for line in run.done.stderr.splitlines() if line.startswith("kernwright: ")]
    assert len(ours) == 2 + len(called)
    assert f"all {len(kernwright.ops.FAMILIES)} of Kernwright's ops" in ours[1]


def test_a_program_without_any_of_them_is_told_what_to_name(capture: Capturing) -> None:
    run = capture("import sys, library\nlibrary.scale(1)\nprint('torch' in sys.modules)\nsys.exit(3)\n")
    assert (run.done.returncode, run.done.stdout) == (3, "False\n")
    assert run.capture.calls == ()
    assert "none of them was called: name what to record with --call module:function or --op NAME" in run.done.stderr
    assert "exit status 3; the capture is empty" in run.done.stderr.splitlines()[0]
    assert len(run.done.stderr.splitlines()) == 4


def test_every_op_is_found_where_the_docs_say() -> None:
    for op in kernwright.ops.FAMILIES:
        found = {}
        for place in places_of(op):
            module, _, path = place.partition(":")
            if not module.startswith("torch.ops."):
                found[module.rpartition(".")[2]] = getattr(
                    importlib.import_module(module), path.partition(".")[0], None
                )
        assert getattr(kernwright.ops, op).__wrapped__ is found["definition"].reference, op
        assert any(isinstance(value, Op) and value.name == op for value in found.values()), op
        assert op_of(target_of(op)) == op
