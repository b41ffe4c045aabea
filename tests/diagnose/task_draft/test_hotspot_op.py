"""Drafts from hotspots: rows with the shapes of a trace, an op that computes the model's chain, clear refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError
from kernwright.core.registry import ops_from_file
from kernwright.diagnose.hotspots.ranking import diagnose
from kernwright.diagnose.task_draft.chain_function import ChainFunction
from kernwright.diagnose.task_draft.hotspot_op import draft_op_of, hotspot_of
from kernwright.diagnose.trace.trace import read_trace
from kernwright.tasks.task import load_task

TRACES = Path(__file__).parents[1] / "traces"
D = 96


def traced(
    path: Path, calls: list[tuple[str, list[Any], list[str], list[str]]], shapes: bool = True, longest: int = 0
) -> Path:
    """Write a trace of operators that launch one eager kernel each: name, dimensions, types, values.

    Args:
        longest: number of kernels at the start that take 90 us instead of 60 us.
    """
    events: list[dict[str, Any]] = []
    for number, (name, dims, types, values) in enumerate(calls):
        at, correlation = 100.0 * number, {"correlation": number}
        inputs = {"Input Dims": dims, "Input type": types, "Concrete Inputs": values} if shapes else {}
        host = {"ph": "X", "pid": 1, "tid": 1}
        kernel = "void at::native::elementwise_kernel<128, 4, Functor<c10::BFloat16>>"
        events += [
            host | {"cat": "cpu_op", "name": name, "ts": at, "dur": 50.0, "args": inputs},
            host | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 5, "dur": 4.0, "args": correlation},
            {
                "ph": "X",
                "cat": "kernel",
                "name": kernel,
                "pid": 0,
                "tid": 7,
                "ts": at + 20,
                "dur": 90.0 if number < longest else 60.0,
            }
            | {"args": correlation | {"device": 0, "stream": 7}},
        ]
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


BF = "c10::BFloat16"
SNAKE = [
    ("aten::mul", [[2, 40, D], [1, 1, D]], [BF, BF], ["", ""]),
    ("aten::sin", [[2, 40, D]], [BF], [""]),
    ("aten::pow", [[2, 40, D], []], [BF, "Scalar"], ["", "2"]),
    ("aten::div", [[2, 40, D], [1, 1, D]], [BF, BF], ["", ""]),
    ("aten::add", [[2, 40, D], [2, 40, D], []], [BF, BF, "Scalar"], ["", "", "1"]),
]


def test_a_new_run_of_operators_becomes_a_task_with_its_shapes(tmp_path: Path) -> None:
    trace = traced(tmp_path / "trace.json", SNAKE)
    (hotspot,) = diagnose(read_trace(trace)).hotspots
    assert (hotspot.coverage.status, hotspot.kind, hotspot.name) == ("new", "run", "mul sin pow div add")
    place = tmp_path / "snake"
    done = CliRunner().invoke(
        app, ["task", "new", "snake", "--op", "snake", "--from-hotspot", f"{trace}:1", "--out", str(place)]
    )
    assert done.exit_code == 0, done.output
    task = load_task(place)
    (row,) = [row for row in task.rows if row.set == "production"]
    assert row.concrete_inputs()["x"].shape == (2, 40, D)
    assert row.axes["D"] == D
    op = task.ops["snake"]
    x, alpha, beta = torch.randn(2, 40, D), torch.rand(1, 1, D) + 0.5, torch.rand(1, 1, D) + 0.5
    (given,) = op.call({"x": x, "x2": alpha, "x3": beta, "x4": x}, {})
    torch.testing.assert_close(given, x + (x * alpha).sin() ** 2 / beta)


@pytest.mark.parametrize("name", ["add_norm", "silu_mul"])
def test_the_draft_of_a_models_chain_computes_it(name: str, tmp_path: Path) -> None:
    path = TRACES / "llama_eager.json.gz"
    draft = draft_op_of(hotspot_of(diagnose(read_trace(path)), name), path, name)
    file = tmp_path / "ops.py"
    file.write_text(draft.text, encoding="utf-8")
    op = ops_from_file(file)[name]
    x, other, weight = torch.randn(3, 64), torch.randn(3, 64), torch.randn(64)
    if name == "silu_mul":
        (given,) = op.call({"x": x, "x2": other}, {})
        torch.testing.assert_close(given, torch.nn.functional.silu(x) * other)
        return
    total, normed = op.call({"x": x, "x2": other, "x3": weight}, {"c1": 1e-5})
    torch.testing.assert_close(total, x + other)
    torch.testing.assert_close(normed, torch.nn.functional.rms_norm(x + other, (64,), weight, 1e-5))
    shapes = {tuple(call.values()["x"].shape) for call in draft.capture.calls}  # type: ignore[union-attr]
    assert shapes == {(4, 2048, 4096), (4, 1, 4096)}


def test_two_norms_in_a_row_are_not_one_of_the_other() -> None:
    path = TRACES / "flux1_eager.json.gz"
    (work, *_) = hotspot_of(diagnose(read_trace(path)), "qk_norm").works
    function = ChainFunction.of(work.calls)
    assert len(function.outputs) == 2
    assert not any("t1" in line for line in function.lines[1:])


LINEAR = ("aten::linear", [[8, D], [4 * D, D], [4 * D]], [BF] * 3, [""] * 3)
# The shift lacks an axis in one of three calls, and that call is the first and takes the longest.
SCALED = [
    ("aten::layer_norm", [[2, 40, D], [], [], [], [], []], [BF, "ScalarList", "", "", "Scalar", "Scalar"],
     ["", f"[{D}]", "", "", "1e-06", "True"]),
    ("aten::add", [[2, 1, D], [], []], [BF, "long int", "Scalar"], ["", "", "1"]),
    ("aten::mul", [[2, 40, D], [2, 1, D]], [BF, BF], ["", ""]),
    ("aten::add", [[2, 40, D], [2, 1, D], []], [BF, BF, "Scalar"], ["", "", "1"]),
]  # fmt: skip
FLAT = [SCALED[0], ("aten::add", [[2, D], [], []], *SCALED[1][2:]), *SCALED[2:]]


def test_the_rows_leave_unknown_numbers_to_the_default_and_have_the_data_flow_with_the_most_time(
    tmp_path: Path,
) -> None:
    gemm = ("aten::mm", [[8, 8], [8, 8]], [BF, BF], ["", ""])
    trace = traced(tmp_path / "trace.json", [*FLAT, gemm, *SCALED, gemm, *SCALED], longest=4)
    place = tmp_path / "scaled"
    done = CliRunner().invoke(
        app, ["task", "new", "scaled", "--from-hotspot", f"{trace}:norm_modulation", "--out", str(place)]
    )
    assert done.exit_code == 0, done.output
    assert "c1 is a number whose value the trace does not have" in done.output
    assert "1 occurrence(s) with another data flow were left out" in done.output
    task = load_task(place)
    (row,) = [row for row in task.rows if row.set == "production"]
    assert row.concrete_inputs()["x2"].shape == (2, 1, D)
    assert not any(row.scalars for row in task.rows), "the default, which the user corrects, counts"


def test_a_weight_is_no_activation(tmp_path: Path) -> None:
    trace = traced(tmp_path / "trace.json", [LINEAR])
    draft = draft_op_of(hotspot_of(diagnose(read_trace(trace)), "1"), trace, "projection")
    assert 'activations=["x"]' in draft.text


@pytest.mark.parametrize(
    ("calls", "shapes", "place", "cause"),
    [
        (SNAKE, False, "1", "the trace has no shapes of the operator aten::mul"),
        (SNAKE, True, "7", "has no hotspot '7'; it has 1"),
        (SNAKE, True, "7", r"--least 0 lists them"),
        (
            [("aten::mul", [[2, 40, 8], [40, 8]], ["c10::complex<float>"] * 2, ["", ""])],
            True,
            "1",
            r"hotspot 1 \(.*\): x is complex64; tasks have no complex tensors",
        ),
        ([("mylib::scan", [[2, 8]], [BF], [""])], True, "1", "mylib::scan is not an operator of PyTorch"),
    ],
)
def test_what_cannot_be_drafted_is_said(
    calls: list[tuple[str, list[Any], list[str], list[str]]], shapes: bool, place: str, cause: str, tmp_path: Path
) -> None:
    trace = traced(tmp_path / "trace.json", calls, shapes)
    with pytest.raises(KernwrightError) as caught:
        draft_op_of(hotspot_of(diagnose(read_trace(trace)), place), trace, None)
    assert caught.value.remedy
    assert re.search(cause, f"{caught.value.cause} / {caught.value.remedy}")
