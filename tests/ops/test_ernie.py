"""ERNIE-Image's blocks: the formula against numpy, and the roundings of its compiled path."""

from __future__ import annotations

import numpy as np
import torch

from kernwright.core.registry import shipped_ops

S, D = 4, 6
RANDOM = np.random.default_rng(7)
RESIDUAL, UPDATE = RANDOM.normal(size=(2, 1, S, D))
GATE, SCALE, SHIFT = RANDOM.normal(size=(3, 1, 1, D))
WEIGHT = RANDOM.normal(size=D)


def modulated(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.01) * WEIGHT * (1 + SCALE) + SHIFT


def as_given(dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    arrays = {"residual": RESIDUAL, "update": UPDATE, "gate": GATE, "weight": WEIGHT, "scale": SCALE, "shift": SHIFT}
    return {name: torch.from_numpy(a).to(dtype) for name, a in arrays.items()}


def test_the_formulas() -> None:
    given = as_given()
    (y,) = shipped_ops()["ernie_norm_modulate"].oracle(given | {"x": given["residual"]}, {"eps": 0.01})
    np.testing.assert_allclose(y.numpy(), modulated(RESIDUAL), atol=1e-13)
    joined, y = shipped_ops()["ernie_residual_norm_modulate"].oracle(given, {"eps": 0.01})
    np.testing.assert_allclose(joined.numpy(), RESIDUAL + GATE * UPDATE, atol=1e-13)
    np.testing.assert_allclose(y.numpy(), modulated(RESIDUAL + GATE * UPDATE), atol=1e-12)


def test_nothing_rounds_between_loads_and_stores() -> None:
    """In bfloat16 each result is the float32 chain rounded once. The norm uses the unrounded residual."""
    given = as_given(torch.bfloat16)
    op = shipped_ops()["ernie_residual_norm_modulate"]
    joined, y = op.call(given, {"eps": 0.01})
    wide_joined, wide_y = op.call({name: tensor.float() for name, tensor in given.items()}, {"eps": 0.01})
    assert torch.equal(joined, wide_joined.bfloat16())
    assert torch.equal(y, wide_y.bfloat16())
    (out,) = shipped_ops()["ernie_residual_gate"].call(given, {})
    assert torch.equal(out, joined)
