"""Overlaps of tensors: computed from strides, and checked against every byte."""

from __future__ import annotations

import pytest
import torch
from overlap_cases import bytes_of, cut, drawn, places

from kernwright.runtime import overlaps
from kernwright.runtime.overlaps import overlaps_itself, share_bytes


def test_the_result_equals_that_of_a_check_byte_by_byte() -> None:
    found = []
    for one, other in drawn(3000):
        alone, together = len(set(places(one))) < one.numel(), bool(bytes_of(one) & bytes_of(other))
        assert overlaps_itself(one) == alone, (one.shape, one.stride())
        assert share_bytes(one, other) == together, (one.shape, one.stride(), other.shape, other.stride())
        found.append((alone, together))
    assert len(set(found)) == 4


@pytest.mark.parametrize(("name", "one", "other", "together"), list(cut()))
def test_tensors_cut_out_of_one_buffer(name: str, one: torch.Tensor, other: torch.Tensor, together: bool) -> None:
    assert share_bytes(one, other) == share_bytes(other, one) == together
    assert not overlaps_itself(one)


def test_an_empty_tensor_overlaps_nothing() -> None:
    assert not overlaps_itself(torch.empty(0, 3).expand(0, 3)) and not overlaps_itself(torch.empty(1, 0).expand(6, 0))


def test_an_undecided_pair_counts_as_an_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors with similar steps: many elements could overlap, but none do."""
    own = torch.empty(0).set_(
        torch.UntypedStorage(200_000), 0, (3,) * 5, (1009, 3 * 1013, 9 * 1019, 9 * 1021, 27 * 1031)
    )
    assert not overlaps_itself(own)
    monkeypatch.setattr(overlaps, "MOST_STEPS", 3)
    assert overlaps_itself(own)
