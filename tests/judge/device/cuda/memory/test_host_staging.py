"""Pieces of outputs that are copied before the clock stops: they lie in the span, spread over it, and are
unpredictable."""

from __future__ import annotations

import pytest
import torch

from kernwright.judge.device.cuda.memory.host_staging import PIECES, Pieces


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 100, 4095, 4096, 4097, 65_536, 10_000_019])
def test_pieces_lie_inside_their_span(length: int) -> None:
    for _ in range(50):
        pieces = Pieces.of(length)
        assert pieces.first + (pieces.count - 1) * pieces.step + pieces.width <= length


def test_no_span_has_no_pieces() -> None:
    assert Pieces.of(0).width == 0


def test_a_part_left_undone_is_seen_wherever_it_is() -> None:
    """A fifth of missing work is found in one call, a fiftieth within the calls of a row."""
    memory = torch.zeros(1_000_000, dtype=torch.uint8)
    for share, looks in ((5, 1), (50, 60)):
        part = memory.numel() // share
        for start in range(0, memory.numel() - part + 1, 9973):
            memory.zero_()[start : start + part] = 1
            assert any(Pieces.of(memory.numel()).within(memory, 0).any() for _ in range(looks))


def test_the_same_part_of_every_step_cannot_be_put_off() -> None:
    """If the step were not random, a side that knows the size would know the step."""
    memory = torch.zeros(1_000_000, dtype=torch.uint8)
    step = memory.numel() // PIECES
    for start in range(0, memory.numel(), step):
        memory[start : start + step // 20] = 1
    assert sum(bool(Pieces.of(memory.numel()).within(memory, 0).any()) for _ in range(50)) > 20


def test_where_the_pieces_lie_cannot_be_foreseen() -> None:
    assert len({Pieces.of(1_000_000).first for _ in range(20)}) > 10


def test_pieces_lie_in_a_span_with_an_offset() -> None:
    memory = torch.zeros(100_000, dtype=torch.uint8)
    memory[40_000:50_000] = 1
    assert Pieces.of(10_000).within(memory, 40_000).all()
