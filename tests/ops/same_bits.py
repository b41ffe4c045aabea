"""Compare results with others bit by bit. The message has the number of elements that differ."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def hold_bits(name: str, found: Any, expected: Any) -> None:
    """Compare one tensor, or sequences of equal length."""
    pairs = ((one,) if isinstance(one, Tensor) else one for one in (found, expected))
    for own, wanted in zip(*pairs, strict=True):
        assert torch.equal(own, wanted), f"{name}: {int((own != wanted).sum())} elements differ in their bits"
