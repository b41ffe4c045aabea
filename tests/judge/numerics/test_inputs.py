"""Contents: each distribution has its intended property, and no draw is repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from kernwright.core.op import Op, define
from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.judge.numerics.inputs import DISTRIBUTIONS
from kernwright.tasks.workload import Workload


def gather(x: Tensor, w: Tensor, mask: Tensor) -> Tensor:
    return x * w


OP: Op = define(outputs=["y"], activations=["x"])(gather)


def workload(make_row: Any, dtype: str = "fp32", rows: int = 64, width: int = 200) -> Workload:
    x = {"shape": [rows, width], "dtype": dtype}
    inputs = {"x": x, "w": {"shape": [width], "dtype": dtype}, "mask": {"shape": [50, 50], "dtype": "i64"}}
    return Workload.model_validate(make_row("r", "gather", inputs, {"y": x}))


def pool(row: Workload, seed: int = 1) -> ContentPool:
    return ContentPool.for_row(row, Generator().manual_seed(seed))


def activation(make_row: Any, distribution: str, dtype: str = "fp32") -> Tensor:
    row = workload(make_row, dtype)
    return pool(row).draw(OP, row, distribution)["x"]


def test_same_seed_same_draw(make_row: Callable[..., Any]) -> None:
    row = workload(make_row)
    one, two, other = (pool(row, seed) for seed in (1, 1, 2))
    for distribution in DISTRIBUTIONS:
        a, b, c = (p.draw(OP, row, distribution) for p in (one, two, other))
        assert all(torch.equal(a[n].nan_to_num(7), b[n].nan_to_num(7)) for n in a), distribution
        assert not torch.equal(a["w"], c["w"])


def test_no_two_draws_are_equal(make_row: Callable[..., Any]) -> None:
    row = workload(make_row, rows=2, width=8)
    drawn = pool(row)
    seen = {tuple(drawn.draw(OP, row)["x"].flatten().tolist()) for _ in range(500)}
    assert len(seen) == 500


def test_an_element_does_not_identify_its_draw(make_row: Callable[..., Any]) -> None:
    """Draws are scaled by a secret factor, so that the same number of the pool never appears twice with the same
    value."""
    row = workload(make_row, rows=64, width=200)
    drawn = pool(row)
    first = {v for _ in range(60) for v in drawn.draw(OP, row)["x"].flatten()[:1].tolist()}
    assert len(first) == 60
    signs = {float(drawn.draw(OP, row)["x"].mean().sign()) for _ in range(20)}
    assert signs == {-1.0, 1.0}


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_shapes_and_dtypes_are_the_rows(make_row: Callable[..., Any], dtype: str) -> None:
    row = workload(make_row, dtype)
    for distribution in DISTRIBUTIONS:
        for name, tensor in pool(row).draw(OP, row, distribution).items():
            spec = row.concrete_inputs()[name]
            assert (tuple(tensor.shape), tensor.dtype) == (spec.shape, getattr(torch, spec.torch_dtype_name))


def test_normal_has_a_spread_of_about_one(make_row: Callable[..., Any]) -> None:
    x = activation(make_row, "normal")
    assert abs(float(x.mean())) < 0.05
    assert 0.85 < float(x.std()) < 1.15


@pytest.mark.parametrize(("dtype", "offset"), [("fp32", 16384.0), ("bf16", 64.0), ("fp16", 64.0)])
def test_offset_loses_a_variance_that_is_not_centred(make_row: Callable[..., Any], dtype: str, offset: float) -> None:
    x = activation(make_row, "offset", dtype).float()
    assert float(x.mean()) == pytest.approx(offset, rel=0.01)
    if dtype == "fp32":
        squares, mean = (x * x).mean(-1), x.mean(-1)
        naive, true = squares - mean * mean, x.double().var(-1, correction=0)
        assert float(((naive.double() - true).abs() / true).max()) > 1.0


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_tiny_is_tiny_and_not_zero(make_row: Callable[..., Any], dtype: str) -> None:
    x = activation(make_row, "tiny", dtype)
    assert float(x.abs().max()) < 1e-3
    assert float((x != 0).double().mean()) > 0.9


def test_rows_of_tiny_float32_values_do_not_share_one_inverse_root(make_row: Callable[..., Any]) -> None:
    """Where eps alone remained, an honest kernel whose 1/sqrt(eps) is rounded in another way was called incorrect."""
    squares = activation(make_row, "tiny").square().mean(-1)
    assert float(squares.max()) < 0.05e-6
    with_eps = squares + 1e-6
    assert with_eps.unique().numel() > squares.numel() // 4
    assert bool((with_eps == 1e-6).any()), "some rows are far below every clamp"


def test_mixed_rows_differ_by_decades(make_row: Callable[..., Any]) -> None:
    spread = activation(make_row, "mixed").std(-1)
    assert float(spread.max() / spread.min()) > 1e4
    assert float(spread.min()) > 1e-3 * 0.8
    assert float(spread.max()) < 1e3 * 1.3


def test_zero_rows_are_zero_from_end_to_end(make_row: Callable[..., Any]) -> None:
    x = activation(make_row, "zero_rows")
    zero = (x == 0).all(-1)
    assert 8 < int(zero.sum()) < 56
    assert bool(((x != 0).all(-1) | zero).all())


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_extremes_are_large_but_can_be_squared(make_row: Callable[..., Any], dtype: str) -> None:
    x = activation(make_row, "extremes", dtype)
    assert bool(torch.isfinite(x).all())
    assert float(x.abs().max()) > (1e4 if dtype == "fp16" else 1e14)
    assert bool(torch.isfinite(x.float().square()).all())
    assert bool((x > 0).any()) and bool((x < 0).any())


def test_nonfinite_plants_a_few_and_leaves_most_rows_clean(make_row: Callable[..., Any]) -> None:
    x = activation(make_row, "nonfinite")
    assert 1 <= int(torch.isnan(x).sum()) <= 1
    assert 1 <= int((~torch.isfinite(x)).sum()) <= 3
    assert int(torch.isfinite(x).all(-1).sum()) >= 61


def test_modulation_stays_near_zero_and_masks_are_yes_or_no(make_row: Callable[..., Any]) -> None:
    row = workload(make_row)
    drawn = pool(row)
    for distribution in DISTRIBUTIONS:
        contents = drawn.draw(OP, row, distribution)
        spread = float(contents["w"].std())
        assert 5 < spread < 10 if distribution == "strong" else 0.3 < spread < 0.7
        assert set(contents["mask"].flatten().tolist()) == {0, 1}


def test_strong_modulation_has_blanks(make_row: Callable[..., Any]) -> None:
    row = workload(make_row)
    drawn = pool(row)
    blanks = [float((drawn.draw(OP, row, "strong")["w"] == 0).double().mean()) for _ in range(20)]
    assert 0.02 < sum(blanks) / len(blanks) < 0.25


def test_an_outlier_stands_alone_in_every_row_and_anywhere(make_row: Callable[..., Any]) -> None:
    x = activation(make_row, "outlier").abs()
    far = x > 50
    assert bool((far.sum(-1) <= 1).all()) and float(far.any(-1).double().mean()) > 0.9
    assert len(set(far.int().argmax(-1).flatten().tolist())) > 5


def lookup(x: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    return x + table[positions]


def test_row_numbers_reach_every_row_of_their_table_and_none_beyond(make_row: Callable[..., Any]) -> None:
    op: Op = define(outputs=["y"], activations=["x"], indices={"positions": "table"})(lookup)
    inputs = {
        "x": {"shape": [40, 3], "dtype": "fp32"},
        "table": {"shape": [7, 3], "dtype": "fp32"},
        "positions": {"shape": [40], "dtype": "i64"},
    }
    row = Workload.model_validate(make_row("r", "lookup", inputs, {"y": {"shape": [40, 3], "dtype": "fp32"}}))
    drawn = [pool(row, seed).draw(op, row)["positions"] for seed in range(20)]
    assert {int(value) for positions in drawn for value in positions} == set(range(7))


def test_first_activation_makes_the_others_small(make_row: Callable[..., Any]) -> None:
    op: Op = define(outputs=["y"], activations=["x", "w"])(gather)
    row = workload(make_row)
    drawn = pool(row).draw(op, row, "first_activation")
    assert 0.8 < float(drawn["x"].std()) < 1.2
    assert 0 < float(drawn["w"].std()) < 0.01


@pytest.mark.parametrize("shape", [(640, 8), (3, 8), (8,)])
def test_rare_offset_changes_at_least_one_row(shape: tuple[int, ...]) -> None:
    noise = torch.randn(shape, generator=Generator().manual_seed(1))
    drawn = DISTRIBUTIONS["rare_offset"](noise, torch.float32, Generator().manual_seed(2))
    hit = (drawn.reshape(-1, shape[-1]) > 1000).all(1)
    assert 1 <= int(hit.sum()) <= max(1, hit.numel() // 20)
    assert torch.equal(drawn.reshape(-1, shape[-1])[~hit], noise.reshape(-1, shape[-1])[~hit])
