"""Norm and SiLU of the video autoencoders, against numpy, in both memory formats."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernwright.core.registry import shipped_ops

C, T, H, W = 8, 2, 3, 5
RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(2, C, T, H, W)) + 1


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def laid_out(x: np.ndarray, channels_last: bool) -> torch.Tensor:
    tensor = torch.from_numpy(x)
    return tensor.to(memory_format=torch.channels_last_3d) if channels_last else tensor


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("groups", [1, 4, C])
def test_group_norm_silu_is_contiguous_whatever_it_is_given(groups: int, channels_last: bool) -> None:
    weight, bias = RANDOM.normal(size=(2, C))
    grouped = X.reshape(2, groups, -1)
    centred = grouped - grouped.mean(-1, keepdims=True)
    normed = (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.01)).reshape(X.shape)
    wanted = silu(normed * weight[None, :, None, None, None] + bias[None, :, None, None, None])
    given = {"x": laid_out(X, channels_last), "weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)}
    (y,) = shipped_ops()["group_norm_silu"].oracle(given, {"num_groups": groups, "eps": 0.01})
    np.testing.assert_allclose(y.numpy(), wanted, atol=1e-12)
    assert y.is_contiguous()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_wan_norms_over_channels_and_keeps_the_memory_format(has_bias: bool, channels_last: bool) -> None:
    gamma, bias = RANDOM.normal(size=(2, C, 1, 1, 1))
    normed = X / np.sqrt((X**2).sum(1, keepdims=True)) * np.sqrt(C) * gamma + (bias if has_bias else 0)
    given = {"x": laid_out(X, channels_last), "gamma": torch.from_numpy(gamma)}
    if has_bias:
        given["bias"] = torch.from_numpy(bias)
    (y,) = shipped_ops()["wan_rmsnorm_silu"].oracle(given, {})
    np.testing.assert_allclose(y.numpy(), silu(normed), atol=1e-12)
    assert y.stride() == given["x"].stride()
