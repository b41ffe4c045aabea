"""The copy that serves as a yardstick: it moves whole pages, and every variant writes the whole target."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernwright.judge.device.cuda.copying import COPY_METHODS, PAGE_BYTES, copy_methods, whole_pages


@pytest.mark.parametrize(
    ("moved", "pages"), [(0, 1), (2, 1), (2 * PAGE_BYTES, 1), (4 * PAGE_BYTES - 2, 1), (4 * PAGE_BYTES, 2)]
)
def test_each_side_is_half_of_what_is_moved_in_whole_pages(moved: int, pages: int) -> None:
    assert whole_pages(moved) == pages * PAGE_BYTES


def test_every_way_writes_the_whole_target() -> None:
    source = torch.arange(PAGE_BYTES, dtype=torch.int64).to(torch.uint8)
    for way in COPY_METHODS:
        target = torch.full_like(source, 7)
        way(target, source)
        assert torch.equal(target, source) or torch.equal(target, ~source), way.__name__


ON_A_GPU = """
import torch
from kernwright.judge.device.cuda.copying import PAGE_BYTES, copy_methods

device = "cuda" if torch.cuda.is_available() else "cpu"
for pages in (1, 3):
    source = torch.arange(pages * PAGE_BYTES, device=device).to(torch.uint8)
    for way in copy_methods("cuda:0"):
        target = torch.full_like(source, 7)
        way(target, source)
        assert torch.equal(target, source) or torch.equal(target, ~source), way.__name__
print(len(copy_methods("cuda")) - len(copy_methods("cpu")), "more")
"""


def test_a_gpu_has_a_way_of_its_own_that_writes_the_whole_target(said_by: Callable[[str], str]) -> None:
    assert copy_methods("cpu") == COPY_METHODS
    assert said_by(ON_A_GPU) == "1 more"
