"""Copying: a plain copy of as many bytes, the yardstick of what a memory-bound kernel can reach.

A GPU's own copy may be slow for its size. Of 45 rows over 40 MB on an H200, the 15 whose size is a multiple of 8 KiB
were copied at 3.3 to 3.8 TB/s, the 23 whose size is none of 4 KiB at 2.3 to 2.6, the 7 in between at either. A
yardstick must not be short: the size is whole pages of 8 KiB, copies by kernels are measured too, the fastest counts,
and all are measured while the memory has nothing else to do (`judge/device/cuda/memory/memory_speed.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PAGE_BYTES = 8192


def whole_pages(moved_bytes: int) -> int:
    """The size of each side of a copy that moves so many bytes in all, or a little less."""
    return max(1, moved_bytes // 2 // PAGE_BYTES) * PAGE_BYTES


def by_the_driver(to: Tensor, source: Tensor) -> None:
    to.copy_(source)


def by_a_kernel(to: Tensor, source: Tensor) -> None:
    """Bits turned over on the way: torch has no kernel that only copies what lies alike."""
    torch.bitwise_not(source.view(torch.int32), out=to.view(torch.int32))


Way = Callable[[Tensor, Tensor], None]
WAYS: tuple[Way, ...] = (by_the_driver, by_a_kernel)


def ways_on(device: str) -> tuple[Way, ...]:
    if not device.startswith("cuda"):
        return WAYS
    from kernwright.judge.device.cuda.copy_kernel import by_triton

    return (*WAYS, by_triton)
