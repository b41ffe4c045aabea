"""The plain norms against numpy in float64, and their use on any machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from plain_norm_cases import BF16

import kernwright
from kernwright import ops
from kernwright.core.registry import shipped_ops
from kernwright.ops.catalog import dispatcher
from kernwright.runtime.choice.fallback import CannotRun, Fallback

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
    """torch's own layer does not support this everywhere."""
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


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((torch.zeros(()),), "x: has no dimension to norm over"),
        ((torch.zeros(2, 8, dtype=torch.int64),), "x: is torch.int64, not floating point"),
        ((torch.zeros(2, 8), torch.zeros(7)), r"weight: is \[7\], it must be \[8\], the width of x"),
        ((torch.zeros(2, 8), torch.zeros(8), torch.zeros(1, 8)), r"bias: is \[1, 8\], it must be \[8\]"),
        ((torch.zeros(2, 8), torch.zeros(8, device="meta")), "weight: is on meta, x is on cpu"),
    ],
)
def test_a_wrong_argument_is_named_by_every_backend(arguments: Any, named: str) -> None:
    for backend in ("torch", None):
        with pytest.raises(ValueError, match=named):
            ops.layer_norm(*arguments, backend=backend)


@pytest.mark.parametrize(
    ("x", "why"),
    [
        (torch.zeros(8, 2).t(), "x has a last axis with gaps"),
        (torch.zeros(2, 65537), "x is 65537 wide, over 65536"),
        (torch.zeros(2, 8, dtype=torch.float64), "x is torch.float64"),
        (torch.zeros([1] * 17), "x has 17 dimensions, over 16"),
    ],
)
def test_unsupported_calls_are_declined_with_a_reason(
    x: torch.Tensor, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # so that the device is no reason to refuse
    answers = {answer.implementation.backend: answer for answer in kernwright.explain("layer_norm", x).answers}
    assert answers["triton"].refusal == why and answers["torch"].refusal is None
    with pytest.raises(CannotRun, match=why):
        ops.layer_norm(x, backend="triton")


def test_a_fallback_warns_once_and_is_an_error_under_strict() -> None:
    x = torch.randn(2, 3, 5, dtype=BF16)
    dispatcher("rms_norm")._told.clear()
    dispatcher("rms_norm")._chosen.clear()
    with pytest.warns(Fallback, match=r"rms_norm runs its reference: cuda \(close\): x is on cpu"):
        ops.rms_norm(x)
    with kernwright.preferring(strict=True), pytest.raises(CannotRun, match="rms_norm would run its reference"):
        ops.rms_norm(x)
    with pytest.warns(Fallback, match="is close, where exact was asked for"):
        y = ops.rms_norm(x, contract="exact")
    assert torch.equal(y, torch.nn.functional.rms_norm(x, (5,), eps=1e-6))
