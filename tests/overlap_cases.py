"""Tensors that share one buffer in every way that strides allow, and the places of all their bytes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import torch
from torch import Tensor

DTYPES = (torch.uint8, torch.float16, torch.float32)
STEPS = (0, 1, 2, 3, 4, 5, 7, 8, 12)


def drawn(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Generate pairs of tensors with up to four axes."""
    lot, memory = random.Random(0), torch.zeros(400, dtype=torch.uint8)

    def one() -> Tensor:
        own = memory.view(lot.choice(DTYPES))
        while True:
            sizes = [lot.randint(1, 4) for _ in range(lot.randint(0, 4))]
            steps = [lot.choice(STEPS) for _ in sizes]
            room = own.numel() - sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
            if room > 0:
                return own.as_strided(sizes, steps, lot.randrange(room))

    for _ in range(count):
        yield one(), one()


def places(own: Tensor) -> list[int]:
    """Return the address of each element's first byte."""
    steps = [range(0, size * step or 1, step) if step else [0] * size for size, step in zip(*_axes(own), strict=True)]
    return [own.data_ptr() + sum(place) * own.itemsize for place in itertools.product(*steps)]


def _axes(own: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(own.shape), own.stride()


def bytes_of(own: Tensor) -> set[int]:
    return {place + byte for place in places(own) for byte in range(own.itemsize)}


# Views of one buffer as programs make them: a name, two tensors, and whether they share memory.
def cut() -> Iterator[tuple[str, Tensor, Tensor, bool]]:
    packed = torch.zeros(2, 4096, 3 * 64)
    query, key = packed[..., :64], packed[..., 64:128]
    yield "thirds of a projection", query, key, False
    yield "thirds, one of them an element early", query, packed[..., 63:127], True
    heads = packed.view(2, 4096, 3, 4, 16)
    yield "heads, turned around", heads[:, :, 0].transpose(1, 2), heads[:, :, 1].transpose(1, 2), False
    yield "heads of one third, turned around", heads[:, 1:, 0].transpose(1, 2), heads[:, :-1, 0].transpose(1, 2), True
    yield "every other row", packed[:, ::2], packed[:, 1::2], False
    yield "every other and every third row", packed[:, 1::2], packed[:, ::3], True
    yield "rows of one width, of another", packed.view(-1)[: 4096 * 65].view(4096, 65)[:, :64], key, True
