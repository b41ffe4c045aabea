"""The plain norms against numpy in float64, written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernwright.core.registry import shipped_ops

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


@pytest.mark.parametrize("dtypes", [("bfloat16", "float32", "bfloat16"), ("float32", "float16", None)])
def test_an_affine_may_have_a_dtype_of_its_own(dtypes: tuple[str, str, str | None]) -> None:
    """Which torch's own layer does not take everywhere."""
    op, (x, weight, bias) = shipped_ops()["layer_norm"], dtypes
    given = {"x": torch.from_numpy(X).to(getattr(torch, x)), "weight": torch.from_numpy(W).to(getattr(torch, weight))}
    given |= {} if bias is None else {"bias": torch.from_numpy(B).to(getattr(torch, bias))}
    (y,) = op.call(given, {"eps": 0.01})
    (wanted,) = op.oracle(given, {"eps": 0.01})
    assert y.dtype == given["x"].dtype
    torch.testing.assert_close(y.double(), wanted, rtol=2 * torch.finfo(y.dtype).eps, atol=1e-6)


@pytest.mark.parametrize("weight", [None, W], ids=["plain", "weight"])
def test_rms_norm(weight: np.ndarray | None) -> None:
    wanted = X / np.sqrt((X**2).mean(-1, keepdims=True) + 0.01) * (1 if weight is None else weight)
    given = {"x": torch.from_numpy(X), "weight": None if weight is None else torch.from_numpy(weight)}
    (y,) = shipped_ops()["rms_norm"].oracle(given, {"eps": 0.01})
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-12)
