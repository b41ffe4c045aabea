"""Norm behind a tanh gate, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kernwright.core.registry import shipped_ops

B, S, D, F = 2, 6, 5, 3
RANDOM = np.random.default_rng(5)
X, SHIFT = RANDOM.normal(size=(2, B, S, D))
W, BIAS, W2, BIAS2 = RANDOM.normal(size=(4, D))


def norm(x: np.ndarray, weight: Any, bias: Any, norm_type: str) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True) if norm_type == "layer" else x
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.01)
    return normed * (1 if weight is None else weight) + (0 if bias is None else bias)


@pytest.mark.parametrize(("norm_type", "weight", "bias"), [("rms", None, None), ("rms", W, None), ("layer", W, BIAS)])
@pytest.mark.parametrize("layout", ["row", "frame"])
def test_both_forms(layout: str, norm_type: str, weight: Any, bias: Any) -> None:
    shape = {"row": (B, 1, D), "frame": (B, F, 1, D)}[layout]
    scale, scale2 = RANDOM.normal(size=(2, *shape))
    over = (lambda m: np.repeat(m[:, :, 0], S // F, axis=1)) if layout == "frame" else (lambda m: m)
    wanted = norm(X, weight, bias, norm_type) * np.tanh(over(scale)) + SHIFT
    weight2, bias2 = None if weight is None else W2, None if bias is None else BIAS2
    wanted2 = norm(wanted, weight2, bias2, norm_type) * (1 + over(scale2))
    arrays = {
        "x": X, "scale": scale, "shift": SHIFT, "weight": weight, "bias": bias,
        "scale2": scale2, "weight2": weight2, "bias2": bias2,
    }  # fmt: skip
    given = {name: None if a is None else torch.from_numpy(a) for name, a in arrays.items()}
    scalars = {"norm_type": norm_type, "eps": 0.01}
    (y,) = shipped_ops()["norm_tanh_mul_add"].oracle(given, scalars)
    np.testing.assert_allclose(y.numpy(), wanted, atol=1e-13)
    y, y2 = shipped_ops()["norm_tanh_mul_add_norm_scale"].oracle(given, scalars)
    np.testing.assert_allclose(y.numpy(), wanted, atol=1e-13)
    np.testing.assert_allclose(y2.numpy(), wanted2, atol=1e-12)
