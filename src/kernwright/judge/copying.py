"""Copying: a plain copy of as many bytes, the yardstick of what a memory-bound kernel can reach.

A GPU's own copy takes half as long again where a size is no multiple of 4 KiB (measured on an H200: 332 MB in 82 us or
in 126), and a kernel's does not. A yardstick must not be short: both ways are measured, of whole pages, and the faster
one counts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PAGE_BYTES = 4096


def whole_pages(moved_bytes: int) -> int:
    """The size of each side of a copy that moves so many bytes in all."""
    return -(-max(1, moved_bytes // 2) // PAGE_BYTES) * PAGE_BYTES


def by_the_driver(to: Tensor, source: Tensor) -> None:
    to.copy_(source)


def by_a_kernel(to: Tensor, source: Tensor) -> None:
    """Bits turned over on the way: torch has no kernel that only copies what lies alike."""
    torch.bitwise_not(source.view(torch.int32), out=to.view(torch.int32))


WAYS: tuple[Callable[[Tensor, Tensor], None], ...] = (by_the_driver, by_a_kernel)
