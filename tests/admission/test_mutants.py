"""Each mutant is wrong in the way that its name says."""

from __future__ import annotations

import pytest
import torch

from kernwright.admission.mutants import Mutant, mutants_of
from kernwright.core.op import Op
from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.tasks.catalog import find_task
from kernwright.tasks.workload import Workload

TASK = find_task("norm_scale_shift")


def small(identity: str) -> Workload:
    """Return a row with the same layouts, at a size that is not a whole number of vectors."""
    return next(row for row in TASK.rows if row.id == identity).resized({"S": 8, "D": 37})


ROWS = ["res_s18144_d3072_gtok-fp32_wb_scl-bf16", "plain_s18144_d3072_tok-fp32", "plain_s19_d3072_row-bf16"]


def pairs() -> list[tuple[str, str]]:
    return [(row, m.name) for row in ROWS for m in mutants_of(TASK.op_of(small(row)), small(row))]


def right(op: Op, row: Workload, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(zip(op.outputs, op.call(inputs, op.scalar_defaults | row.scalars), strict=True))


@pytest.mark.parametrize(("identity", "name"), pairs())
def test_every_mutant_differs_from_the_reference(identity: str, name: str) -> None:
    row = small(identity)
    op = TASK.op_of(row)
    mutant: Mutant = next(m for m in mutants_of(op, row) if m.name == name)
    pool = ContentPool.for_row(row, torch.Generator().manual_seed(5))
    mutant.behaviour(pool.draw(op, row))  # A stale output needs an earlier output to keep.
    inputs = pool.draw(op, row)
    before = {n: t.clone() for n, t in inputs.items()}
    wrong, honest = mutant.behaviour(inputs), right(op, row, inputs)
    assert all(torch.equal(before[n], inputs[n]) for n in inputs), "a mutant must not change the case's inputs"
    assert wrong.keys() == honest.keys()
    assert all((wrong[n].shape, wrong[n].dtype) == (honest[n].shape, honest[n].dtype) for n in honest)
    assert any(not torch.equal(wrong[n], honest[n]) for n in honest)


def test_a_skipped_tail_is_wrong_in_the_tail_alone() -> None:
    row = small("plain_s19_d3072_row-bf16")
    op = TASK.op_of(row)
    inputs = ContentPool.for_row(row, torch.Generator().manual_seed(5)).draw(op, row)
    honest = right(op, row, inputs)["y"]
    named = {m.name: m for m in mutants_of(op, row)}
    last_row = named["skipped tail (last row)"].behaviour(inputs)["y"]
    assert torch.equal(last_row[:, :-1], honest[:, :-1])
    assert not last_row[:, -1].any()
    odd = named["skipped tail (last vector of an odd row)"].behaviour(inputs)["y"]
    assert torch.equal(odd[..., :32], honest[..., :32])
    assert not odd[..., 32:].any()


def test_a_tail_of_padding_is_not_all_that_is_skipped() -> None:
    """The padding is zero in a correct output too, so the mutant must skip more than that."""
    padded = find_task("causal_conv3d_cat_pad")
    (row,) = padded.select("grid_k0_C1_T1_H9_W11_fp32")  # 13 columns: three vectors and one more column
    op = padded.op_of(row)
    inputs = ContentPool.for_row(row, torch.Generator().manual_seed(5)).draw(op, row)
    honest = right(op, row, inputs)["out"]
    odd = next(m for m in mutants_of(op, row) if "odd row" in m.name).behaviour(inputs)["out"]
    assert torch.equal(odd[..., :11], honest[..., :11])
    assert honest[..., 11].any() and not odd[..., 11:].any()


@pytest.mark.parametrize(("width", "is_odd"), [(40, False), (37, True)])
def test_a_row_of_a_grid_has_an_odd_tail_or_has_none(width: int, is_odd: bool) -> None:
    """A grid row is checked at its own size only. At other sizes the mutant would be another function."""
    row = small("plain_s19_d3072_row-bf16").resized({"D": width})
    grid = row.model_copy(update={"set": "grid"})
    named = [{m.name for m in mutants_of(TASK.op_of(row), own)} for own in (row, grid)]
    assert named[0] - named[1] == (set() if is_odd else {"skipped tail (last vector of an odd row)"})


def test_coarse_sums_are_coarse_and_nothing_else() -> None:
    row = small("plain_s18144_d3072_tok-fp32").resized({"D": 1000})
    op = TASK.op_of(row)
    inputs = ContentPool.for_row(row, torch.Generator().manual_seed(5)).draw(op, row, "normal")
    coarse = next(m for m in mutants_of(op, row) if m.name == "low precision").behaviour(inputs)["y"]
    honest = right(op, row, inputs)["y"]
    oracle = op.oracle(inputs, op.scalar_defaults | row.scalars)[0]
    assert (coarse.double() - oracle).square().mean() > 2 * (honest.double() - oracle).square().mean()
    assert torch.nn.functional.cosine_similarity(coarse.double().flatten(), oracle.flatten(), dim=0) > 0.999


def test_an_activation_is_approximated_where_there_is_one() -> None:
    """The rational function is within 2.4 % of tanh, which the gated sum shows."""
    task = find_task("norm_tanh_mul_add")
    row = task.select("smoke")[0].resized({"S": 4})
    op = task.op_of(row)
    (mutant,) = (m for m in mutants_of(op, row) if m.name == "approximate activation")
    inputs = ContentPool.for_row(row, torch.Generator().manual_seed(5)).draw(op, row)
    near, honest = (found["y"].double() for found in (mutant.behaviour(inputs), right(op, row, inputs)))
    assert 1e-3 < float((near - honest).norm() / honest.norm()) < 0.03
    assert not any(m.name == "approximate activation" for m in mutants_of(TASK.op_of(small(ROWS[0])), small(ROWS[0])))


def test_one_term_is_dropped_for_every_input_but_the_data() -> None:
    row = small(ROWS[0])
    dropped = {m.name for m in mutants_of(TASK.op_of(row), row) if m.name.startswith("dropped")}
    assert dropped == {f"dropped term ({name})" for name in row.inputs if name != "x"}
