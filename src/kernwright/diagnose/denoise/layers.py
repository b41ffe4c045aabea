"""Layers: the cut of a model's depth that --layers names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from kernwright.core.errors import KernwrightError


def cut_layers(text: str, full: Sequence[int]) -> list[int]:
    """Return the numbers of layers that a text names, such as `12` or `4+8`.

    Args:
        full: the layers that the model has, kind by kind. One number is shared among the kinds in proportion.
    """
    whole = "+".join(map(str, full))
    numbers = [int(part) for part in text.split("+")] if re.fullmatch(r"\d+(\+\d+)*", text) else []
    if len(numbers) == 1 and len(full) > 1:
        numbers = _shared(numbers[0], full)
    wrong = len(numbers) != len(full) or not all(1 <= own <= most for own, most in zip(numbers, full, strict=False))
    if wrong:
        least = "+".join("1" for _ in full)
        raise KernwrightError(f"--layers {text} does not fit a model with {whole} layers", f"give {least} to {whole}")
    return numbers


def _shared(total: int, full: Sequence[int]) -> list[int]:
    """Share a number of layers in proportion, with at least one of each kind. Return nothing if that is impossible."""
    if not len(full) <= total <= sum(full):
        return []
    exact = [total * most / sum(full) for most in full]
    numbers = [max(1, math.floor(share)) for share in exact]
    while sum(numbers) != total:
        step = 1 if sum(numbers) < total else -1
        gaps = [step * (share - own) for share, own in zip(exact, numbers, strict=True)]
        allowed = [at for at, own in enumerate(numbers) if 1 <= own + step <= full[at]]
        numbers[max(allowed, key=gaps.__getitem__)] += step
    return numbers
