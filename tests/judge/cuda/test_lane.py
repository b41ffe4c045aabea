"""Pieces of outputs that are looked at before the clock stops: in the span, all over it, never foreseen."""

from __future__ import annotations

import pytest
import torch

from kernwright.judge.cuda.lane import PIECES, Pieces


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 100, 4095, 4096, 4097, 65_536, 10_000_019])
def test_pieces_lie_inside_their_span(length: int) -> None:
    for _ in range(50):
        pieces = Pieces.of(length)
        assert pieces.first + (pieces.count - 1) * pieces.step + pieces.width <= length


def test_no_span_has_no_pieces() -> None:
    assert Pieces.of(0).width == 0


def test_a_part_left_undone_is_seen_wherever_it_is() -> None:
    """Anything longer than a step has a piece in it; what is shorter is a sixty-fourth of the work."""
    memory = torch.zeros(1_000_000, dtype=torch.uint8)
    step = Pieces.of(memory.numel()).step
    assert step <= memory.numel() // PIECES
    for start in range(0, memory.numel() - 2 * step, 9973):
        memory.zero_()[start : start + 2 * step] = 1
        assert Pieces.of(memory.numel()).within(memory, 0).any()


def test_where_the_pieces_lie_cannot_be_foreseen() -> None:
    assert len({Pieces.of(1_000_000).first for _ in range(20)}) > 10


def test_pieces_are_of_the_span_that_starts_where_it_is_said() -> None:
    memory = torch.zeros(100_000, dtype=torch.uint8)
    memory[40_000:50_000] = 1
    assert Pieces.of(10_000).within(memory, 40_000).all()
