"""The plain norms against numpy in float64, written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernwright.ops.registry import shipped_ops

X = np.random.default_rng(1).normal(size=(5, 12)) + 2
W, B = np.random.default_rng(2).normal(size=(2, 12))


@pytest.mark.parametrize("affine", [(None, None), (W, None), (W, B)], ids=["plain", "weight", "weight and bias"])
def test_layer_norm(affine: tuple[np.ndarray | None, np.ndarray | None]) -> None:
    weight, bias = affine
    centred = X - X.mean(-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.01)
    wanted = wanted * (1 if weight is None else weight) + (0 if bias is None else bias)
    tensors = {"x": X, "weight": weight, "bias": bias}
    given = {name: None if value is None else torch.from_numpy(value) for name, value in tensors.items()}
    (y,) = shipped_ops()["layer_norm"].oracle(given, {"eps": 0.01})
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("weight", [None, W], ids=["plain", "weight"])
def test_rms_norm(weight: np.ndarray | None) -> None:
    wanted = X / np.sqrt((X**2).mean(-1, keepdims=True) + 0.01) * (1 if weight is None else weight)
    given = {"x": torch.from_numpy(X), "weight": None if weight is None else torch.from_numpy(weight)}
    (y,) = shipped_ops()["rms_norm"].oracle(given, {"eps": 0.01})
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-12)
