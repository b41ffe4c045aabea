"""SecretRng: the random generator for all choices of a judgement. Past choices do not reveal future ones.

A worker sees the order of every block that it runs. From enough such numbers it could recover the state of a Mersenne
Twister and predict every later order, audit and content seed. The output of a hash function does not reveal its key.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Generator

CONTENT_SEED_BITS = 63  # the most that torch accepts; a GPU could try all seeds of 32 bits in a second
_BLOCK_BYTES = 256
_FIRST_WORD, _STATE_WORDS = 3, 624  # position and length of the Mersenne Twister's words in torch's generator state


class SecretRng(random.Random):
    """A `random.Random` that draws from a keyed hash. The same seed gives the same choices."""

    def __init__(self, seed: int) -> None:
        self._key = hashlib.sha256(f"kernwright {seed}".encode()).digest()
        self._blocks = self._used = 0
        self._buffer = b""
        super().__init__(seed)

    def getrandbits(self, k: int, /) -> int:
        start, self._used = self._used, self._used + -(-k // 8)
        while len(self._buffer) < self._used:
            self._buffer = self._buffer[start:] + self._next_block()
            start, self._used = 0, self._used - start
        return int.from_bytes(self._buffer[start : self._used], "little") >> -k % 8

    def _next_block(self, size: int = _BLOCK_BYTES) -> bytes:
        self._blocks += 1
        return hashlib.shake_256(self._key + self._blocks.to_bytes(8, "little")).digest(size)

    def sample(self, population: Sequence[Any], k: int, *, counts: Iterable[int] | None = None) -> list[Any]:
        """Choose by sorting one random number per element, all from a single hash.

        A block orders hundreds of calls, and one hash per choice would be slow.
        """
        size = len(population)
        if counts is not None or not 0 <= k <= size:
            return super().sample(population, k, counts=counts)
        numbers = struct.unpack(f"<{size}Q", self._next_block(8 * size))
        return [population[index] for index in sorted(range(size), key=numbers.__getitem__)[:k]]

    def random(self) -> float:
        return self.getrandbits(53) * 2.0**-53

    def seed(self, *_: Any, **__: Any) -> None:
        """Ignore the call: the seed is fixed at construction."""

    def content_seed(self) -> int:
        return self.getrandbits(CONTENT_SEED_BITS)


def cpu_generator(seed: int) -> Generator:
    """Return a torch generator whose whole state depends on all bits of the seed.

    `manual_seed` of torch's CPU generator uses only 32 bits.
    """
    generator = Generator().manual_seed(seed)
    state = generator.get_state()
    drawn = hashlib.shake_256(seed.to_bytes(16, "little")).digest(4 * _STATE_WORDS)
    words = torch.frombuffer(bytearray(drawn), dtype=torch.int32).long() & 0xFFFF_FFFF
    state[: 8 * (_FIRST_WORD + _STATE_WORDS)].view(torch.int64)[_FIRST_WORD:] = words
    return generator.set_state(state)
