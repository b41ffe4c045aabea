"""What lies on top of what: by arithmetic, held against every byte."""

from __future__ import annotations

import pytest
import torch
from overlap_cases import bytes_of, cut, drawn, places

from kernwright.runtime import overlaps
from kernwright.runtime.overlaps import overlaps_itself, share_bytes


def test_it_is_as_byte_by_byte() -> None:
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


def test_nothing_of_no_elements_overlaps() -> None:
    assert not overlaps_itself(torch.empty(0, 3).expand(0, 3)) and not overlaps_itself(torch.empty(1, 0).expand(6, 0))


def test_what_nobody_can_tell_in_time_counts_as_an_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps near each other, of which many could take each other's place, and none do."""
    own = torch.empty(0).set_(
        torch.UntypedStorage(200_000), 0, (3,) * 5, (1009, 3 * 1013, 9 * 1019, 9 * 1021, 27 * 1031)
    )
    assert not overlaps_itself(own)
    monkeypatch.setattr(overlaps, "MOST_STEPS", 3)
    assert overlaps_itself(own)
