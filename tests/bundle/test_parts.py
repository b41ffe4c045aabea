"""Cutting a bundle into parts."""

from __future__ import annotations

import pytest

from kernwright.bundle.parts import PackageGroup, pack, parse_size
from kernwright.core.errors import KernwrightError


def load(name: str, size: int, *regular: str) -> PackageGroup:
    return PackageGroup([name], [], size, set(regular))


def test_parts_hold_everything_once_and_none_is_too_large() -> None:
    loads = [load(f"p{size}", size) for size in (7, 1, 5, 3, 3, 6, 2, 4)]
    parts = pack(loads, 8)
    assert sorted(name for part in parts for each in part for name in each.names) == sorted(
        n for x in loads for n in x.names
    )
    assert all(sum(each.bytes for each in part) <= 8 for part in parts)
    assert len(parts) == 4  # three parts are too small for 31 bytes


def test_without_a_limit_there_is_one_part() -> None:
    loads = [load("a", 5), load("b", 9)]
    assert pack(loads, None) == [loads]


def test_wheels_that_share_a_regular_package_stay_together() -> None:
    loads = [load("a", 4, "shared"), load("b", 4, "other"), load("c", 3, "shared", "third"), load("d", 1, "third")]
    parts = [{name for each in part for name in each.names} for part in pack(loads, 8)]
    assert {"a", "c", "d"} in parts


def test_a_package_larger_than_a_part_is_named_with_the_size_it_needs() -> None:
    with pytest.raises(KernwrightError, match="torch") as caught:
        pack([load("torch", 3 * (1 << 20) + 1)], 1 << 20)
    assert "--part-size 4M" in caught.value.remedy


@pytest.mark.parametrize(("text", "size"), [("48M", 48 << 20), ("48MiB", 48 << 20), ("2g", 2 << 30), ("100", 100)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "0", "-1M", "1.5M", "48 bananas"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(KernwrightError, match="--part-size"):
        parse_size(text)
