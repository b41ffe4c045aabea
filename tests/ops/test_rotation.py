"""Rotations against complex numbers, and the roundings in which LTX-2's differs from the others."""

from __future__ import annotations

import numpy as np
import torch

from kernwright.core.registry import shipped_ops

B, S, H, D = 2, 5, 3, 8
RANDOM = np.random.default_rng(3)
ANGLES = RANDOM.uniform(-3, 3, size=(S, D // 2))


def test_adjacent_pairs_are_complex_numbers_turned() -> None:
    x = RANDOM.normal(size=(B, S, H, D))
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * ANGLES)[None, :, None, :]
    wanted = np.empty_like(x)
    wanted[..., 0::2], wanted[..., 1::2] = turned.real, turned.imag
    cos, sin = torch.from_numpy(np.cos(ANGLES)), torch.from_numpy(np.sin(ANGLES))
    (y,) = shipped_ops()["rotary"].oracle({"x": torch.from_numpy(x), "cos": cos, "sin": sin}, {})
    np.testing.assert_allclose(y.numpy(), wanted, atol=1e-14)


def split_twin(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Rotate head by head: the first half is the real part, the second the imaginary one. Angles are `[B, H, S,
    D/2]`."""
    wanted = np.empty_like(x)
    for b in range(B):
        for s in range(S):
            for h in range(H):
                head = x[b, s, h * D : (h + 1) * D]
                turned = (head[: D // 2] + 1j * head[D // 2 :]) * np.exp(1j * angles[b, h, s])
                wanted[b, s, h * D : (h + 1) * D] = np.concatenate([turned.real, turned.imag])
    return wanted


def test_split_halves_are_turned_head_by_head() -> None:
    x, angles = RANDOM.normal(size=(B, S, H * D)), RANDOM.uniform(-3, 3, size=(B, H, S, D // 2))
    given = {"x": x, "cos": np.cos(angles), "sin": np.sin(angles)}
    (y,) = shipped_ops()["ltx2_split_rotary"].oracle({n: torch.from_numpy(a) for n, a in given.items()}, {})
    np.testing.assert_allclose(y.numpy(), split_twin(x, angles), atol=1e-14)


def test_the_split_rotation_rounds_the_product_with_cos_and_the_other_does_not() -> None:
    """(1 + 2^-7)^2 - (1 + 2^-6) is 2^-14, but in bfloat16 the square is 1 + 2^-6 and nothing is left."""
    pair = torch.tensor([1 + 2**-7, 1 + 2**-6], dtype=torch.bfloat16)
    c, s = torch.tensor([1 + 2**-7], dtype=torch.bfloat16), torch.tensor([1.0], dtype=torch.bfloat16)
    (split,) = shipped_ops()["ltx2_split_rotary"].call(
        {"x": pair.view(1, 1, 2), "cos": c.view(1, 1, 1, 1), "sin": s.view(1, 1, 1, 1)}, {}
    )
    (whole,) = shipped_ops()["rotary"].call(
        {"x": pair.view(1, 1, 1, 2), "cos": c.float().view(1, 1), "sin": s.float().view(1, 1)}, {}
    )
    assert float(split.flatten()[0]) == 0.0
    assert float(whole.flatten()[0]) == 2**-14
