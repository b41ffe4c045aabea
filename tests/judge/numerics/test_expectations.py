"""The check on every output of a timed block."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.judge.numerics.contracts import ErrorFigures, Expected
from kernwright.judge.numerics.correctness import expected_outputs
from kernwright.judge.numerics.expectations import Bits, BlockExpectation, Bound
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Tolerance, load_task

FINE = Tolerance(atol=0.05, rtol=0.05)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def figures(oracle: Tensor, eager: Tensor) -> ErrorFigures:
    e = Expected.of(oracle, eager)
    return ErrorFigures(e.eager_max, e.eager_rms, e.eager_max, e.eager_rms)


@pytest.fixture
def oracle() -> Tensor:
    return drawn(16, 64)


@pytest.fixture
def bound(oracle: Tensor) -> Bound:
    return Bound.around(oracle, torch.bfloat16, figures(oracle, oracle.bfloat16()))


def test_the_eager_output_is_within(oracle: Tensor, bound: Bound) -> None:
    assert bound.problem(oracle.bfloat16()) is None


@pytest.mark.parametrize("stray", [math.nan, math.inf, -math.inf, -9.3e37, 3.0])
def test_one_wrong_element_is_seen(oracle: Tensor, bound: Bound, stray: float) -> None:
    value = oracle.bfloat16()
    value[3, 5] = stray
    assert "wrong in 1 of 1024 elements" in str(bound.problem(value))


def test_errors_that_hide_below_the_tolerance_are_seen_together(oracle: Tensor, bound: Bound) -> None:
    """Every element is within the largest allowed error, but all of them are nearly that far off: an imprecise
    kernel."""
    coarse = oracle + 0.9 * bound.element_limits * torch.sign(drawn(16, 64))
    assert "RMS" in str(bound.problem(coarse))


def test_zeros_are_seen(oracle: Tensor, bound: Bound) -> None:
    assert bound.problem(torch.zeros_like(oracle).bfloat16())


def test_a_float32_bound_has_digits_beyond_float32(oracle: Tensor) -> None:
    tight = Bound.around(oracle, torch.float32, figures(oracle, oracle.float()))
    assert tight.problem(oracle.float()) is None
    assert tight.problem(oracle.float() * (1 + 2.0**-20))


def test_exact_outputs_are_held_to_their_bits() -> None:
    eager = torch.tensor([1.0, 2.0])
    assert Bits(eager).problem(eager.clone()) is None
    assert Bits(eager).problem(torch.tensor([1.0, math.nextafter(2.0, 3.0)]).double().float()) is None
    assert Bits(eager).problem(torch.nextafter(eager, torch.tensor(9.0)))


def test_exact_outputs_may_hold_the_references_nan() -> None:
    """The correctness phase allows this too. Otherwise the baseline itself could not pass."""
    eager = torch.tensor([1.0, math.nan])
    assert Bits(eager).problem(eager.clone()) is None


def test_whole_numbers_are_watched_too() -> None:
    oracle = torch.tensor([0, 3, 7])
    exact = ErrorFigures(0.0, 0.0, 0.0, 0.0)
    bound = Bound.around(oracle, torch.int64, exact)
    assert bound.problem(torch.tensor([0, 3, 7])) is None
    assert bound.problem(torch.tensor([0, 3, 8]))


@pytest.mark.parametrize("identity", ["smoke_plain_s19_d3072_row-bf16", "smoke_res_s19_d3072_grow-bf16_row-bf16"])
def test_a_real_rows_eager_chain_passes_on_any_draw_and_a_stale_one_never(identity: str) -> None:
    task = find_task("norm_scale_shift")
    (row,) = task.select(identity)
    op = task.op_of(row)
    pool = ContentPool.for_row(row, torch.Generator().manual_seed(4))
    scalars = op.scalar_defaults | row.scalars
    first = expected_outputs(op, row, pool.draw(op, row))
    eager = {n: ErrorFigures(e.eager_max, e.eager_rms, e.eager_max, e.eager_rms) for n, e in first.items()}
    stale: dict[str, Tensor] | None = None
    for _ in range(8):
        inputs = pool.draw(op, row)
        wanted = BlockExpectation.of(op, row, inputs, eager)
        outputs = dict(zip(op.outputs, op.call(inputs, scalars), strict=True))
        assert wanted.problem(outputs) is None
        if stale is not None:
            assert str(wanted.problem(stale)).startswith(op.outputs[0])
        stale = outputs


def test_an_exact_ops_expectation_is_its_eager_chain(tiny_folder: Path) -> None:
    task = load_task(tiny_folder)
    (row,) = task.select("negate")
    x = torch.randn(6, 64)
    wanted = BlockExpectation.of(task.op_of(row), row, {"x": x}, {})
    assert wanted.problem({"y": -x}) is None
    assert wanted.problem({"y": -x * (1 + 1e-7)})


def test_drawing_up_an_expectation_leaves_in_place_inputs_alone(tiny_folder: Path) -> None:
    task = load_task(tiny_folder)
    (row,) = task.select("accumulate")
    op = task.op_of(row)
    for dtype in (torch.float32, torch.float64):
        inputs = {"state": torch.ones(6, 64, dtype=dtype), "x": torch.ones(6, 64, dtype=dtype)}
        expected = expected_outputs(op, row, inputs)
        assert bool((inputs["state"] == 1).all()), dtype
        assert bool((expected["total"].eager == 2).all()), dtype
        assert bool((expected["state"].eager == 2).all()), "what is changed in place is a result too"
        zero = ErrorFigures(0.0, 0.0, 0.0, 0.0)
        BlockExpectation.of(op, row, inputs, {"total": zero, "twice": zero, "state": zero})
        assert bool((inputs["state"] == 1).all()), dtype


def test_an_error_that_the_chain_itself_makes_here_accuses_nobody(tiny_folder: Path) -> None:
    """The row's bound comes from one draw. On another draw the eager chain may have a far larger error."""
    task = find_task("norm_scale_shift")
    (row,) = task.select("smoke_res_s96_d3072_gtok-fp32_wb_scl-bf16")
    op = task.op_of(row)
    pool = ContentPool.for_row(row, torch.Generator().manual_seed(11))
    inputs = pool.draw(op, row)
    known = expected_outputs(op, row, inputs)
    lucky = {n: ErrorFigures(0, 0, e.eager_max / 1000, e.eager_rms / 1000) for n, e in known.items()}
    wanted = BlockExpectation.of(op, row, inputs, lucky)
    eager = {name: e.eager for name, e in known.items()}
    assert wanted.problem(eager) is None
    off = {name: value.clone() for name, value in eager.items()}
    off["y"].view(-1)[7] += 8 * known["y"].eager_max
    assert "y is wrong in 1 of" in str(wanted.problem(off))


def test_a_baseline_may_round_in_its_own_way_and_no_more() -> None:
    """For an exact op a candidate must match the bits, and a trusted side the tolerance."""
    task = find_task("residual_gate_add")
    row = next(row for row in task.select("smoke") if row.op == "residual_gate")
    op = task.op_of(row)
    inputs = ContentPool.for_row(row, torch.Generator().manual_seed(1)).draw(op, row)
    expected = BlockExpectation.of(op, row, inputs, {})
    once = (inputs["residual"].float() + inputs["update"].float() * inputs["gate"].float()).to(torch.bfloat16)
    tolerances = {"out": task.tolerance_for("bf16")}
    assert "differs in its bits" in str(expected.problem({"out": once}))
    assert expected.problem({"out": once}, tolerances) is None
    wrong = once.clone()
    wrong[0, 0, 0] += 1
    assert "in 1 of" in str(expected.problem({"out": wrong}, tolerances))
    wrong[0, 0, 0] = math.nan
    assert expected.problem({"out": wrong}, tolerances)


def test_a_tolerance_never_asks_for_more_than_the_eager_chain_can_give() -> None:
    """LTX-2 rounds 1 + scale to bfloat16, so its float32 results are farther from the oracle than their tolerance."""
    task = find_task("ltx2_rms_adaln")
    row = task.select("smoke")[0]
    op = task.op_of(row)
    inputs = ContentPool.for_row(row, torch.Generator().manual_seed(1)).draw(op, row)
    known = expected_outputs(op, row, inputs)["y"]
    eager = {"y": ErrorFigures(known.eager_max, known.eager_rms, known.eager_max, known.eager_rms)}
    expected = BlockExpectation.of(op, row, inputs, eager)
    tolerances = {"y": task.tolerance_for("fp32")}
    assert known.eager_max > 100 * tolerances["y"].atol
    assert expected.problem({"y": known.eager}, tolerances) is None
    assert expected.problem({"y": known.eager + 4 * known.eager_max}, tolerances)
