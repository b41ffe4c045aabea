"""LTX-2's norm and modulation: float32 results of half-width tokens, as under autocast."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernwright.core.registry import shipped_ops

B, S, D = 2, 4, 6
RANDOM = np.random.default_rng(6)
X = RANDOM.normal(size=(B, S, D))
NORMED = X / np.sqrt((X**2).mean(-1, keepdims=True) + 0.01)


def oracle(name: str, **arrays: np.ndarray) -> tuple[torch.Tensor, ...]:
    return shipped_ops()[name].oracle({n: torch.from_numpy(a) for n, a in arrays.items()}, {"eps": 0.01})


@pytest.mark.parametrize("shape", [(B, 1, D), (B, S, D)])
def test_one_and_two_modulations(shape: tuple[int, ...]) -> None:
    scale0, shift0, scale1, shift1 = RANDOM.normal(size=(4, *shape))
    (y,) = oracle("rms_modulate", x=X, scale=scale0, shift=shift0)
    np.testing.assert_allclose(y.numpy(), NORMED * (1 + scale0) + shift0, atol=1e-13)
    both = oracle("dual_modulate", x=X, scale0=scale0, shift0=shift0, scale1=scale1, shift1=shift1)
    np.testing.assert_allclose(both[0].numpy(), NORMED * (1 + scale0) + shift0, atol=1e-13)
    np.testing.assert_allclose(both[1].numpy(), NORMED * (1 + scale1) + shift1, atol=1e-13)


@pytest.mark.parametrize("tokens", [1, S])
@pytest.mark.parametrize(("op", "results"), [("rms_modulate_from_table", 1), ("dual_modulate_from_table", 2)])
def test_the_table_and_the_timestep_are_added_row_by_row(op: str, results: int, tokens: int) -> None:
    count = 2 * results
    table, temb = RANDOM.normal(size=(count, D)), RANDOM.normal(size=(B, tokens, count * D))
    found = oracle(op, x=X, temb_scale_shift=temb, scale_shift_table=table)
    assert len(found) == results
    rows = table[None, None] + temb.reshape(B, tokens, count, D)
    for i, y in enumerate(found):
        np.testing.assert_allclose(y.numpy(), NORMED * (1 + rows[:, :, 2 * i]) + rows[:, :, 2 * i + 1], atol=1e-13)


@pytest.mark.parametrize("table_dtype", [torch.bfloat16, torch.float32])
def test_one_modulation_from_a_table_has_the_bits_of_the_first_of_two(table_dtype: torch.dtype) -> None:
    """Both round in the same places: the sum in the common dtype, then 1 + scale in that dtype."""
    x, temb = torch.from_numpy(X).bfloat16(), torch.from_numpy(RANDOM.normal(size=(B, 1, 2, D))).bfloat16()
    table = torch.from_numpy(RANDOM.normal(size=(2, D))).to(table_dtype)
    ops, scalars = shipped_ops(), {"eps": 0.01}
    one = {"x": x, "temb_scale_shift": temb.flatten(2), "scale_shift_table": table}
    two = {"x": x, "temb_scale_shift": temb.repeat(1, 1, 2, 1).flatten(2), "scale_shift_table": table.repeat(2, 1)}
    (y,) = ops["rms_modulate_from_table"].call(one, scalars)
    assert y.dtype == torch.float32
    for wanted in ops["dual_modulate_from_table"].call(two, scalars):
        assert torch.equal(y, wanted)


def test_results_are_float32_and_only_one_plus_scale_rounds() -> None:
    x, scale, shift = (torch.from_numpy(RANDOM.normal(size=(B, S, D))).bfloat16() for _ in range(3))
    (y,) = shipped_ops()["rms_modulate"].call({"x": x, "scale": scale, "shift": shift}, {"eps": 0.01})
    assert y.dtype == torch.float32
    wide = x.double()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 0.01)
    rounded = (1 + scale).double()
    torch.testing.assert_close(y.double(), normed * rounded + shift.double(), rtol=1e-5, atol=1e-6)
    never_rounded = normed * (1 + scale.double()) + shift.double()
    assert (y.double() - never_rounded).abs().max() > 1e-3
