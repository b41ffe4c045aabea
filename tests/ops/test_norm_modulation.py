"""norm_scale_shift against a twin written as loops over single tokens, in float64 numpy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from kernwright.core.registry import shipped_ops

B, S, D, FRAMES = 2, 6, 10, 3
LAYOUTS = {
    "one": (1,),
    "channel": (D,),
    "batch": (B, D),
    "row": (B, 1, D),
    "token": (B, S, D),
    "frame": (B, FRAMES, 1, D),
}


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def at(modulation: np.ndarray, b: int, s: int, d: int) -> float:
    """Return the element of a modulation tensor that token (b, s) uses at channel d, by the layout's table."""
    index: tuple[int, ...] = {
        (1,): (0,),
        (D,): (d,),
        (B, D): (b, d),
        (B, 1, D): (b, 0, d),
        (B, S, D): (b, s, d),
        (B, FRAMES, 1, D): (b, s // (S // FRAMES), 0, d),
    }[modulation.shape]
    return float(modulation[index])


def naive(
    x: np.ndarray, scale: np.ndarray, shift: np.ndarray, weight: Any, bias: Any, norm_type: str, eps: float
) -> np.ndarray:
    y = np.empty_like(x)
    for b, s in itertools.product(range(B), range(S)):
        token = [float(v) for v in x[b, s]]
        mean = sum(token) / D if norm_type == "layer" else 0.0
        variance = sum((v - mean) ** 2 for v in token) / D
        for d, value in enumerate(token):
            normed = (value - mean) / math.sqrt(variance + eps)
            normed *= 1.0 if weight is None else float(weight[d])
            normed += 0.0 if bias is None else float(bias[d])
            y[b, s, d] = normed * (1.0 + at(scale, b, s, d)) + at(shift, b, s, d)
    return y


def as_tensors(**arrays: np.ndarray | None) -> dict[str, torch.Tensor | None]:
    return {name: None if array is None else torch.from_numpy(array) for name, array in arrays.items()}


AFFINES = {"plain": (False, False), "weight": (True, False), "weight and bias": (True, True)}


@pytest.mark.parametrize("affine", AFFINES)
@pytest.mark.parametrize("norm_type", ["layer", "rms"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_plain_matches_loops(layout: str, norm_type: str, affine: str) -> None:
    has_weight, has_bias = AFFINES[affine]
    has_bias = has_bias and norm_type == "layer"  # an RMS norm has no bias
    x, scale, shift = draw(1, B, S, D) + 3, draw(2, *LAYOUTS[layout]), draw(3, *LAYOUTS[layout])
    weight, bias = draw(4, D) if has_weight else None, draw(5, D) if has_bias else None
    op = shipped_ops()["norm_scale_shift"]
    tensors = as_tensors(x=x, scale=scale, shift=shift, weight=weight, bias=bias)
    (y,) = op.oracle(tensors, {"norm_type": norm_type, "eps": 0.01})
    np.testing.assert_allclose(y.numpy(), naive(x, scale, shift, weight, bias, norm_type, 0.01), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gate_layout", [None, "row", "batch", "token", "frame"])
@pytest.mark.parametrize("norm_type", ["layer", "rms"])
def test_residual_matches_loops(gate_layout: str | None, norm_type: str) -> None:
    x, residual = draw(1, B, S, D), draw(2, B, S, D)
    scale, shift = draw(3, B, 1, D), draw(4, B, 1, D)
    gate = None if gate_layout is None else draw(5, *LAYOUTS[gate_layout])
    summed = np.empty_like(x)
    for b, s, d in itertools.product(range(B), range(S), range(D)):
        summed[b, s, d] = residual[b, s, d] + x[b, s, d] * (1.0 if gate is None else at(gate, b, s, d))
    op = shipped_ops()["residual_norm_scale_shift"]
    tensors = as_tensors(x=x, residual=residual, scale=scale, shift=shift, gate=gate)
    y, res_out = op.oracle(tensors, {"norm_type": norm_type})
    np.testing.assert_allclose(res_out.numpy(), summed, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        y.numpy(), naive(summed, scale, shift, None, None, norm_type, 1e-6), rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize("modulation", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_eager_chain_keeps_the_dtype_of_x_and_its_precision(dtype: torch.dtype, modulation: torch.dtype) -> None:
    tensors = {
        "x": torch.from_numpy(draw(1, B, S, D)).to(dtype),
        "scale": torch.from_numpy(draw(2, D)).to(modulation) / 4,
        "shift": torch.from_numpy(draw(3, D)).to(modulation) / 4,
        "weight": torch.from_numpy(draw(4, D)).float(),
        "bias": torch.from_numpy(draw(5, D)).float(),
    }
    op = shipped_ops()["norm_scale_shift"]
    (eager,), (oracle,) = op.call(tensors, {}), op.oracle(tensors, {})
    assert eager.dtype == dtype
    assert oracle.dtype == torch.float64
    coarsest = max(torch.finfo(dtype).eps, torch.finfo(modulation).eps if modulation != torch.float32 else 0)
    assert (eager.double() - oracle).abs().max() < 16 * coarsest


def test_the_norm_of_an_eager_chain_is_rounded_before_it_is_modulated() -> None:
    """The definition includes the rounding points: half-width tokens round between norm and modulation."""
    x = torch.from_numpy(draw(1, 1, 4, 64)).bfloat16()
    scale, shift = torch.full((1,), 0.37), torch.full((1,), 0.0)  # float32 modulation promotes
    op = shipped_ops()["norm_scale_shift"]
    (y,) = op.call({"x": x, "scale": scale, "shift": shift}, {})
    normed = torch.nn.functional.layer_norm(x, (64,), eps=1e-6)
    assert normed.dtype == torch.bfloat16
    assert torch.equal(y, (normed.float() * 1.37).bfloat16())
    unrounded = torch.nn.functional.layer_norm(x.float(), (64,), eps=1e-6) * 1.37
    assert not torch.equal(y, unrounded.bfloat16())


def test_frames_must_divide_the_tokens() -> None:
    op = shipped_ops()["norm_scale_shift"]
    x, frame = torch.zeros(1, 5, 4), torch.zeros(1, 2, 1, 4)
    with pytest.raises(ValueError, match="5 tokens do not divide into 2 frames"):
        op.call({"x": x, "scale": frame, "shift": frame}, {})


def test_an_unknown_norm_is_refused() -> None:
    op = shipped_ops()["norm_scale_shift"]
    x = torch.zeros(1, 5, 4)
    with pytest.raises(ValueError, match="'batch'"):
        op.call({"x": x, "scale": x, "shift": x}, {"norm_type": "batch"})


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64, torch.bool])
@pytest.mark.parametrize("residual", [False, True])
def test_each_token_has_the_modulation_that_its_index_picks(residual: bool, index_dtype: torch.dtype) -> None:
    sets = {
        f"{name}{number}": draw(7 + number, B, D) * (2 + number)
        for name in ("scale", "shift", "gate")
        for number in (0, 1)
    }
    index = np.random.default_rng(11).integers(0, 2, size=(B, S))
    x, held, opened = draw(12, B, S, D), draw(13, B, S, D), draw(14, B, S, D)
    base = held + opened * x if residual else x
    chosen = {
        name: np.stack([[sets[f"{name}{index[b, s]}"][b] for s in range(S)] for b in range(B)])
        for name in ("scale", "shift", "gate")
    }
    tensors = as_tensors(x=x, **sets, **({"residual": held, "residual_gate": opened} if residual else {}))
    tensors["index"] = torch.from_numpy(index).to(index_dtype)
    op = shipped_ops()["residual_norm_scale_shift_select" if residual else "norm_scale_shift_select"]
    found = dict(zip(op.outputs, op.oracle(tensors, {"eps": 0.01}), strict=True))
    wanted = naive(base, chosen["scale"], chosen["shift"], None, None, "layer", 0.01)
    np.testing.assert_allclose(found["y"].numpy(), wanted, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(found["gate_out"].numpy(), chosen["gate"])
    if residual:
        np.testing.assert_allclose(found["residual_out"].numpy(), base, rtol=1e-13, atol=1e-13)


def test_an_rms_norm_with_a_bias_is_refused() -> None:
    """Some kernels accept a bias and silently ignore it."""
    x = torch.zeros(1, 1, D)
    with pytest.raises(ValueError, match="no bias"):
        shipped_ops()["norm_scale_shift"].call(
            {"x": x, "scale": x, "shift": x, "weight": x[0, 0], "bias": x[0, 0]}, {"norm_type": "rms"}
        )
