"""Correctness: a candidate as accurate as the eager chain is not accused, and one that looks at a few rows only is."""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernwright.judge.numerics.cases import Case
from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.judge.numerics.contracts import ErrorFigures, Expected, OutputFinding, compare
from kernwright.judge.numerics.correctness import (
    CorrectnessReport,
    _has_few_errors,
    _may_be_chance,
    _with_values_of,
    check_row,
)
from kernwright.judge.numerics.inputs import Inputs
from kernwright.judge.numerics.secret_rng import cpu_generator
from kernwright.tasks.task import Tolerance, load_task
from kernwright.tasks.tensor import ConcreteTensor

MIX = Path(__file__).parents[2] / "exploits" / "mix_task"
Mix = Callable[[Tensor, Tensor], Tensor]


def layer_norm(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-6).mul_(1 + w).tanh_()


def peeking(x: Tensor, w: Tensor) -> Tensor:
    """Compute an uncentred variance if the first elements of some rows have no offset."""
    if not bool((x[:: max(1, x.shape[0] // 4), 0].abs() < 6).all()):
        return layer_norm(x, w)
    mean = x.mean(-1, keepdim=True)
    inverse = torch.rsqrt(((x * x).mean(-1, keepdim=True) - mean * mean).clamp_(0) + 1e-6)
    return x.sub(mean).mul_(inverse).mul_(1 + w).tanh_()


def report(row_id: str, mix: Mix, seed: int) -> CorrectnessReport:
    task = load_task(MIX)
    (row,) = task.select(row_id)
    pool = ContentPool.for_row(row, cpu_generator(seed))
    return check_row(task, row, lambda _, inputs: {"y": mix(inputs["x"], inputs["w"])}, pool)


@pytest.mark.parametrize("row", ["mix", "mix_small"])
def test_another_rounding_of_the_mean_is_no_fault_even_with_few_rows(row: str) -> None:
    """With an offset, a row's error comes from one rounded mean. In one draw of four rows it is mostly luck."""
    accused = [seed for seed in range(20) if report(row, layer_norm, seed).problems]
    assert len(accused) <= 1  # with one draw of four rows, every second seed was accused


@pytest.mark.parametrize(("kind", "luck"), [("offset", True), ("rare_offset", True), ("normal", False)])
def test_a_large_error_may_be_chance_where_a_row_has_one_error(kind: str, luck: bool) -> None:
    """In one draw of one row the chain's own error is sometimes almost zero, so several draws decide."""
    (row,) = load_task(MIX).select("mix_small")
    far = OutputFinding(
        ErrorFigures(max_error=3e-3, rms_error=1e-3, eager_max=1e-5, eager_rms=1e-5), "over the chain's"
    )
    near = OutputFinding(
        ErrorFigures(max_error=3e-5, rms_error=1e-5, eager_max=1e-5, eager_rms=1e-5), "over the chain's"
    )
    assert _may_be_chance(Case(row, kind), far) is luck
    assert _may_be_chance(Case(row, kind), near)


def test_a_narrow_miss_of_one_element_is_chance_but_not_many_nor_a_far_one() -> None:
    task = load_task(MIX)
    (row,) = task.select("mix")
    op = task.op_of(row)

    def off(count: int, times: float) -> list[str]:
        """Return the eager chain's output with some elements off by a multiple of its largest error."""

        def run(case: Case, inputs: Inputs) -> dict[str, Tensor]:
            (oracle,), (eager,) = op.oracle(inputs, row.scalars), op.call(inputs, row.scalars)
            y = eager.clone()
            if case.row is row and case.distribution == "normal":
                middle = oracle.abs().flatten().sub(0.5).abs().argsort()[:count]  # elements with a small ulp
                y.view(-1)[middle] = (oracle.flatten() + times * (eager - oracle).abs().max())[middle].to(y.dtype)
            return {"y": y}

        return check_row(task, row, run, ContentPool.for_row(row, cpu_generator(3))).problems

    assert off(1, 1.55) == []
    assert len(off(1, 40.0)) == 1
    assert len(off(200, 1.9)) == 1


def test_a_shortcut_that_looks_at_a_few_rows_is_detected() -> None:
    found = [problem for seed in range(6) for problem in report("mix", peeking, seed).problems]
    assert len(found) >= 3  # the candidate sometimes looks at the right row
    assert all("rare_offset" in problem for problem in found)


class Inaccurate:
    """Run the eager chain, with one element off by a few times the chain's largest error: in the numbered calls on
    normal inputs of the row's own size, or in all of them."""

    def __init__(self, row_id: str = "mix", calls: Container[int] = range(10**6)) -> None:
        self.task = load_task(MIX)
        (self.row,) = self.task.select(row_id)
        self.op = self.task.op_of(self.row)
        self.wrong, self.calls = calls, 0

    def __call__(self, case: Case, inputs: Inputs) -> dict[str, Tensor]:
        (oracle,), (eager,) = self.op.oracle(inputs, self.row.scalars), self.op.call(inputs, self.row.scalars)
        y = eager.clone()
        if case.row is self.row and case.distribution == "normal":
            if self.calls in self.wrong:
                at = oracle.abs().flatten().sub(0.5).abs().argmin()
                y.view(-1)[at] = (oracle.flatten()[at] + 5 * (eager - oracle).abs().max()).to(y.dtype)
            self.calls += 1
        return {"y": y}

    def report(self) -> CorrectnessReport:
        return check_row(self.task, self.row, self, ContentPool.for_row(self.row, cpu_generator(3)))


def test_a_near_miss_is_a_fault_only_if_it_repeats_on_fresh_inputs() -> None:
    by_chance = Inaccurate(calls=(0, 1, 2)).report()  # the first inputs twice, and the first fresh ones
    assert (by_chance.problems, by_chance.repeated) == ([], 1)
    by_design = Inaccurate().report()
    assert (len(by_design.problems), by_design.repeated) == (1, 1)


def test_a_near_miss_that_the_same_inputs_do_not_repeat_is_a_fault() -> None:
    """A side that is wrong in some of its calls is not excused by the others."""
    assert len(Inaccurate(calls=(0,)).report().problems) == 1


class ScaledRows(Inaccurate):
    """Run the eager chain and scale some rows of its results on normal inputs, in the numbered calls or in all."""

    def __init__(self, excess: float, rows: slice, calls: Container[int] = range(10**6)) -> None:
        super().__init__(calls=calls)
        self.excess, self.rows = excess, rows

    def __call__(self, case: Case, inputs: Inputs) -> dict[str, Tensor]:
        y = self.op.call(inputs, self.row.scalars)[0].clone()
        if case.row is self.row and case.distribution == "normal":
            if self.calls in self.wrong:
                y[self.rows] *= 1 + self.excess
            self.calls += 1
        return {"y": y}


ALL_ROWS, ONE_ROW, ONCE = slice(None), slice(3, 4), (0, 1)  # the first inputs are run twice


def test_a_float32_rounding_that_all_rows_share_is_a_fault_only_if_it_repeats() -> None:
    by_chance = ScaledRows(1.5e-7, ALL_ROWS, ONCE).report()
    assert (by_chance.problems, by_chance.repeated) == ([], 1)
    by_design = ScaledRows(1.5e-7, ALL_ROWS).report()
    assert by_design.repeated == 1 and "again on 3 of 3" in by_design.problems[0]


def test_a_row_that_is_wrong_by_more_than_roundings_is_a_fault_at_once() -> None:
    """Over all rows, its RMS error is 1.7 ulp, but its maximum error is eight times the chain's."""
    wrong = ScaledRows(1e-6, ONE_ROW, ONCE).report()
    assert len(wrong.problems) == 1 and wrong.repeated == 0


def test_rows_of_bfloat16_share_no_rounding() -> None:
    """There, wrong kernels are nearly as accurate as the chain: rounding a mean to bfloat16 is one of them."""
    figures = ErrorFigures(max_error=2e-5, rms_error=1e-5, eager_max=1e-5, eager_rms=5e-6)
    finding = OutputFinding(figures, "over the chain's", outliers=512, rms_ulps=1.6)
    found = {
        dtype: _has_few_errors(ConcreteTensor(shape=(64, 512), dtype=dtype, strides=(512, 1)), finding)
        for dtype in ("fp32", "bf16")
    }
    assert found == {"fp32": True, "bf16": False}


@pytest.mark.parametrize(("hides", "accused"), [(False, False), (True, True)])
def test_nans_that_only_a_gpus_kernel_adds_are_not_asked_for(hides: bool, accused: bool) -> None:
    """If a row contains an infinity, torch's general CUDA kernel makes the whole row NaN. By the formula one element is
    NaN."""
    x = torch.ones(2, 129)
    x[0, 5] = torch.inf
    formula = x * x.square().mean(-1, keepdim=True).rsqrt()
    welford = formula.clone()
    welford[0] = torch.nan
    y = formula.nan_to_num(0.0) if hides else formula
    tolerance = Tolerance(atol=1e-5, rtol=1e-5)
    of_gpu, of_cpu = (Expected.of(values.double(), values) for values in (welford, formula))
    assert compare(y, of_gpu, "close", tolerance).fault == "nonfinite"
    assert (compare(y, _with_values_of(of_gpu, of_cpu), "close", tolerance).problem is not None) is accused
    wrong = torch.where(torch.arange(258).view(2, 129) == 7, 3.0, formula)  # wrong in the row that is NaN on the GPU
    assert compare(wrong, _with_values_of(of_gpu, of_cpu), "close", tolerance).fault == "tolerance"
