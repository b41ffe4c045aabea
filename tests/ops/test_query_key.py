"""Norms of queries and keys with their rotations, against numpy, in place and out of place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernwright.core.registry import shipped_ops

TOKENS, H, D, CACHE = 5, 2, 8, 7
RANDOM = np.random.default_rng(4)


def rms(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.01) * weight


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("rope_dim", [4, 8])
@pytest.mark.parametrize("is_neox", [False, True])
def test_heads_are_normed_and_their_first_entries_turned(is_neox: bool, rope_dim: int, index: torch.dtype) -> None:
    heads = {name: RANDOM.normal(size=(TOKENS, H, D)) for name in ("q", "k")}
    weights = {f"{name}_weight": RANDOM.normal(size=D) for name in ("q", "k")}
    angles = RANDOM.uniform(-3, 3, size=(CACHE, rope_dim // 2))
    positions = np.array([6, 0, 3, 3, 1])
    given = {name: torch.from_numpy(a) for name, a in (heads | weights).items()}
    given["cos_sin_cache"] = torch.from_numpy(np.concatenate([np.cos(angles), np.sin(angles)], axis=-1))
    given["positions"] = torch.from_numpy(positions).to(index)
    before = {name: tensor.clone() for name, tensor in given.items()}
    op = shipped_ops()["qknorm_rope"]
    results = op.results(given, {"eps": 0.01, "is_neox": is_neox}, precision=torch.float64)
    assert set(results) == {"q", "k"}
    for name, x in heads.items():
        normed = rms(x, weights[f"{name}_weight"])
        low, high = (slice(0, rope_dim // 2), slice(rope_dim // 2, rope_dim)) if is_neox else (
            slice(0, rope_dim, 2), slice(1, rope_dim, 2)
        )  # fmt: skip
        turned = (normed[..., low] + 1j * normed[..., high]) * np.exp(1j * angles[positions])[:, None, :]
        wanted = normed.copy()
        wanted[..., low], wanted[..., high] = turned.real, turned.imag
        np.testing.assert_allclose(results[name].numpy(), wanted, atol=1e-13)
    assert all(torch.equal(given[name], tensor) for name, tensor in before.items()), "the tensors given stay"
    op.call(given, {"eps": 0.01, "is_neox": is_neox})
    assert torch.equal(given["q"], results["q"]), "a call itself works in place"


def test_ltx2_norms_all_heads_together_and_turns_halves() -> None:
    batch, q_tokens, k_tokens = 2, 3, 4
    q, k = RANDOM.normal(size=(batch, q_tokens, H * D)), RANDOM.normal(size=(batch, k_tokens, H * D))
    weights = RANDOM.normal(size=(2, H * D))
    angles = [RANDOM.uniform(-3, 3, size=(batch, H, n, D // 2)) for n in (q_tokens, k_tokens)]
    given = {"q": q, "k": k, "q_norm_weight": weights[0], "k_norm_weight": weights[1]}
    for name, a in zip(("q", "k"), angles, strict=True):
        given |= {f"{name}_cos": np.cos(a), f"{name}_sin": np.sin(a)}
    op = shipped_ops()["ltx2_qknorm_split_rope"]
    found = op.oracle({n: torch.from_numpy(a) for n, a in given.items()}, {"eps": 0.01})
    for out, x, weight, angle in zip(found, (q, k), weights, angles, strict=True):
        normed = rms(x, weight).reshape(batch, x.shape[1], H, 2, D // 2)
        turned = (normed[..., 0, :] + 1j * normed[..., 1, :]) * np.exp(1j * angle.transpose(0, 2, 1, 3))
        wanted = np.stack([turned.real, turned.imag], axis=-2).reshape(x.shape)
        np.testing.assert_allclose(out.numpy(), wanted, atol=1e-13)
