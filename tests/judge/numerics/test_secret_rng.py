"""SecretRng: repeatable with its seed, and unpredictable without it."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

from kernwright.judge.numerics.secret_rng import CONTENT_SEED_BITS, SecretRng, cpu_generator


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others() -> None:
    def drawn(seed: int) -> list[object]:
        rng = SecretRng(seed)
        return [rng.randint(3, 900), rng.sample(range(64), 9), rng.random(), rng.content_seed()]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_all_choices_are_equally_likely() -> None:
    rng = SecretRng(1)
    counts = Counter(rng.randrange(6) for _ in range(6000))
    assert all(850 < counts[face] < 1150 for face in range(6))
    assert all(0.0 <= rng.random() < 1.0 for _ in range(100))
    assert max(rng.content_seed() for _ in range(64)).bit_length() == CONTENT_SEED_BITS


def test_a_sample_has_each_at_most_once_and_all_alike() -> None:
    rng = SecretRng(2)
    firsts = Counter(tuple(rng.sample(range(5), 2)) for _ in range(8000))
    assert len(firsts) == 20 and all(300 < count < 500 for count in firsts.values())
    assert sorted(rng.sample("abc", 3)) == ["a", "b", "c"] and rng.sample([], 0) == []
    with pytest.raises(ValueError, match="larger"):
        rng.sample(range(2), 3)


def test_earlier_numbers_do_not_determine_later_ones() -> None:
    """624 numbers are the whole state of a Mersenne Twister and determine all later ones."""

    def predicted(rng: random.Random) -> bool:
        seen = [_untempered(rng.getrandbits(32)) for _ in range(624)]
        clone = random.Random()
        clone.setstate((3, (*seen, 624), None))
        return [clone.getrandbits(32) for _ in range(4)] == [rng.getrandbits(32) for _ in range(4)]

    assert predicted(random.Random(5))
    assert not predicted(SecretRng(5))


def _untempered(word: int) -> int:
    word ^= word >> 18
    word ^= (word << 15) & 0xEFC60000
    found = word
    for _ in range(5):
        found = word ^ ((found << 7) & 0x9D2C5680)
    word = found
    for _ in range(3):
        found = word ^ (found >> 11)
    return found & 0xFFFFFFFF


@pytest.mark.parametrize("other", [2**32 + 9, 2**62 + 9])
def test_all_bits_of_a_seed_count_on_a_cpu_too(other: int) -> None:
    assert torch.equal(torch.randn(4, generator=cpu_generator(9)), torch.randn(4, generator=cpu_generator(9)))
    assert not torch.equal(torch.randn(4, generator=cpu_generator(9)), torch.randn(4, generator=cpu_generator(other)))
    numbers = torch.randn(20_000, generator=cpu_generator(other))
    assert abs(numbers.mean()) < 0.05 and abs(numbers.std() - 1) < 0.05
