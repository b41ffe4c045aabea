"""Data movement: every bit is copied, also from views, and the padding is in its place."""

from __future__ import annotations

import math

import pytest
import torch

from kernwright.core.registry import shipped_ops


def holding_everything(*shape: int) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64).bfloat16()
    x.view(-1)[:4] = torch.tensor([math.nan, math.inf, -math.inf, -0.0])
    return x


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16)


def test_concatenation_takes_views_of_some_heads() -> None:
    whole, b = holding_everything(1, 3, 4, 8), holding_everything(1, 2, 2, 8)
    (out,) = shipped_ops()["concat_sequence"].call({"a": whole[:, :, 1:3], "b": b}, {})
    assert out.is_contiguous() and out.shape == (1, 5, 2, 8)
    assert torch.equal(bits(out[:, :3]), bits(whole[:, :, 1:3]))
    assert torch.equal(bits(out[:, 3:]), bits(b))


@pytest.mark.parametrize("view", [False, True])
def test_a_copy_is_dense_and_its_own(view: bool) -> None:
    whole = holding_everything(1, 3, 4, 8)
    a = whole[:, :, :2] if view else whole
    (out,) = shipped_ops()["copy_contiguous"].call({"a": a}, {})
    assert out.is_contiguous() and out.data_ptr() != a.data_ptr()
    assert torch.equal(bits(out), bits(a))


@pytest.mark.parametrize("cached", [0, 1, 2])
def test_cached_frames_take_the_place_of_padding(cached: int) -> None:
    x = holding_everything(1, 2, 3, 4, 5)
    cache = holding_everything(1, 2, cached, 4, 5) if cached == 2 else x[:, :, :cached].clone()
    given = {"x": x, "cache": cache if cached else None}
    (out,) = shipped_ops()["causal_cat_pad"].call(given, {"pad_w": 1, "pad_h": 2, "pad_t": 2})
    assert out.shape == (1, 2, 5, 8, 7)
    assert torch.equal(bits(out[:, :, 2:, 2:-2, 1:-1]), bits(x))
    assert torch.equal(bits(out[:, :, 2 - cached : 2, 2:-2, 1:-1]), bits(cache))
    inside = torch.zeros(out.shape, dtype=torch.bool)
    inside[:, :, 2 - cached :, 2:-2, 1:-1] = True
    assert not bits(out)[~inside].any(), "zeros everywhere else"


def test_more_cached_frames_than_padding_are_refused() -> None:
    x = holding_everything(1, 1, 1, 2, 2)
    with pytest.raises(ValueError, match="2 cached frames do not fit into a padding of 1"):
        shipped_ops()["causal_cat_pad"].call({"x": x, "cache": torch.cat([x, x], dim=2)}, {"pad_t": 1})
