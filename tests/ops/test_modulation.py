"""Modulation and gates: every layout against loops, and every rounding in the place where the eager chain has it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from kernwright.core.registry import shipped_ops

B, S, D, F = 2, 6, 5, 3
LAYOUTS = {"one": (1,), "channel": (D,), "batch": (B, D), "row": (B, 1, D), "token": (B, S, D), "frame": (B, F, 1, D)}


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def at(modulation: np.ndarray, layout: str, b: int, s: int, d: int) -> float:
    place = {"one": (0,), "channel": (d,), "batch": (b, d), "row": (b, 0, d), "token": (b, s, d)}
    place["frame"] = (b, s // (S // F), 0, d)
    return float(modulation[place[layout]])


@pytest.mark.parametrize("k", [0.0, 1.0])
@pytest.mark.parametrize("shift_layout", LAYOUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scale_shift_matches_loops(layout: str, shift_layout: str, k: float) -> None:
    x, scale, shift = draw(1, B, S, D), draw(2, *LAYOUTS[layout]), draw(3, *LAYOUTS[shift_layout])
    wanted = np.empty_like(x)
    for b, s, d in itertools.product(range(B), range(S), range(D)):
        wanted[b, s, d] = x[b, s, d] * (k + at(scale, layout, b, s, d)) + at(shift, shift_layout, b, s, d)
    given = {name: torch.from_numpy(a) for name, a in {"x": x, "scale": scale, "shift": shift}.items()}
    (y,) = shipped_ops()["scale_shift"].oracle(given, {"scale_constant": k})
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-13)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_residual_gate_matches_loops(layout: str) -> None:
    residual, update, gate = draw(1, B, S, D), draw(2, B, S, D), draw(3, *LAYOUTS[layout])
    wanted = np.empty_like(residual)
    for b, s, d in itertools.product(range(B), range(S), range(D)):
        wanted[b, s, d] = residual[b, s, d] + update[b, s, d] * at(gate, layout, b, s, d)
    given = {"residual": residual, "update": update, "gate": gate}
    (out,) = shipped_ops()["residual_gate"].oracle({n: torch.from_numpy(a) for n, a in given.items()}, {})
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-13)


def test_a_half_width_product_rounds_before_the_sum() -> None:
    """1 + 2^-7 squared is 1 + 2^-6 + 2^-14: bfloat16 drops the last term before the addition."""
    x = torch.full((1, 1, 1), 1 + 2**-7, dtype=torch.bfloat16)
    exact = float(x) ** 2
    rounded = float((x * x).float())
    assert exact != rounded
    gate = shipped_ops()["residual_gate"].call({"residual": -x, "update": x, "gate": x}, {})[0]
    assert float(gate) == float((torch.tensor(rounded) - x.float()).bfloat16())
    assert float(gate) != exact - float(x)


def test_a_float32_gate_promotes_and_rounds_once() -> None:
    x = torch.full((1, 1, 1), 1 + 2**-7, dtype=torch.bfloat16)
    gate = torch.full((1, 1, 1), 1 + 2**-10)
    (y,) = shipped_ops()["scale_shift"].call({"x": x, "scale": gate, "shift": -x}, {"scale_constant": 0.0})
    assert y.dtype == torch.bfloat16
    assert float(y) == float((x.float() * gate - x.float()).bfloat16())


def test_a_broadcast_sum_repeats_the_smaller_one() -> None:
    a, b = torch.from_numpy(draw(1, 1, 1, 3, D)), torch.from_numpy(draw(2, 1, S, 3, D))
    (out,) = shipped_ops()["broadcast_add"].oracle({"a": a, "b": b}, {})
    for s in range(S):
        assert torch.equal(out[0, s], a[0, 0] + b[0, s])
