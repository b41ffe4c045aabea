"""SecretRng: all random choices of a judgement, from one seed. Past choices do not reveal future ones.

A worker sees the order of every block that it runs. From enough of such numbers the state of a Mersenne Twister
follows, and with it every order, every audit's place and every seed of contents to come. A hash does not run backwards.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Generator

CONTENT_BITS = 63  # of a seed: as many as torch takes. Of 32 a GPU tries all in a second
_BLOCK_BYTES = 256
_FIRST_WORD, _STATE_WORDS = 3, 624  # of the generator that torch has on a CPU, which by itself takes 32 bits of a seed


class SecretRng(random.Random):
    """Repeatable from its seed, like its base, whose methods it has."""

    def __init__(self, seed: int) -> None:
        self._key = hashlib.sha256(f"kernwright {seed}".encode()).digest()
        self._blocks = self._used = 0
        self._drawn = b""
        super().__init__(seed)

    def getrandbits(self, k: int, /) -> int:
        start, self._used = self._used, self._used + -(-k // 8)
        while len(self._drawn) < self._used:
            self._drawn = self._drawn[start:] + self._next_block()
            start, self._used = 0, self._used - start
        return int.from_bytes(self._drawn[start : self._used], "little") >> -k % 8

    def _next_block(self, size: int = _BLOCK_BYTES) -> bytes:
        self._blocks += 1
        return hashlib.shake_256(self._key + self._blocks.to_bytes(8, "little")).digest(size)

    def sample(self, population: Sequence[Any], k: int, *, counts: Iterable[int] | None = None) -> list[Any]:
        """In the order of as many numbers as there are to choose from: one hash for all of them, since a block has
        hundreds of calls and an order is drawn for each."""
        size = len(population)
        if counts is not None or not 0 <= k <= size:
            return super().sample(population, k, counts=counts)
        numbers = struct.unpack(f"<{size}Q", self._next_block(8 * size))
        return [population[place] for place in sorted(range(size), key=numbers.__getitem__)[:k]]

    def random(self) -> float:
        return self.getrandbits(53) * 2.0**-53

    def seed(self, *_: Any, **__: Any) -> None:
        """Its own is for good."""

    def content_seed(self) -> int:
        return self.getrandbits(CONTENT_BITS)


def cpu_generator(seed: int) -> Generator:
    """With all bits of the seed in its state, 32 in each of its words."""
    generator = Generator().manual_seed(seed)
    state = generator.get_state()
    drawn = hashlib.shake_256(seed.to_bytes(16, "little")).digest(4 * _STATE_WORDS)
    words = torch.frombuffer(bytearray(drawn), dtype=torch.int32).long() & 0xFFFF_FFFF
    state[: 8 * (_FIRST_WORD + _STATE_WORDS)].view(torch.int64)[_FIRST_WORD:] = words
    return generator.set_state(state)
