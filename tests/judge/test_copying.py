"""The yardstick: whole pages, and every way writes all of the target."""

from __future__ import annotations

import pytest
import torch

from kernwright.judge.copying import PAGE_BYTES, WAYS, whole_pages


@pytest.mark.parametrize(
    ("moved", "pages"), [(0, 1), (2, 1), (2 * PAGE_BYTES, 1), (4 * PAGE_BYTES - 2, 1), (4 * PAGE_BYTES, 2)]
)
def test_each_side_is_half_of_what_is_moved_in_whole_pages(moved: int, pages: int) -> None:
    assert whole_pages(moved) == pages * PAGE_BYTES


def test_every_way_writes_the_whole_target() -> None:
    source = torch.arange(PAGE_BYTES, dtype=torch.int64).to(torch.uint8)
    for way in WAYS:
        target = torch.full_like(source, 7)
        way(target, source)
        assert torch.equal(target, source) or torch.equal(target, ~source), way.__name__
