"""Copying: plain copies, whose time is the limit that a memory-bound kernel can reach.

The driver's copy can be slow for some sizes. Of 45 rows over 40 MB on an H200, the 15 whose size is a multiple of 8 KiB
were copied at 3.3 to 3.8 TB/s, the 23 whose size is not a multiple of 4 KiB at 2.3 to 2.6 TB/s, the others at a rate of
one of these ranges. The limit must not be too low, so sizes are rounded to pages of 8 KiB, copies by kernels are
measured too, and the fastest copy counts. All are measured while the memory is idle
(`judge/device/cuda/memory/memory_speed.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PAGE_BYTES = 8192


def whole_pages(moved_bytes: int) -> int:
    """Return the size of source and target of a copy that moves this many bytes in total, rounded down to pages."""
    return max(1, moved_bytes // 2 // PAGE_BYTES) * PAGE_BYTES


def copy_by_driver(to: Tensor, source: Tensor) -> None:
    to.copy_(source)


def copy_by_torch_kernel(to: Tensor, source: Tensor) -> None:
    """Copy with all bits inverted, because torch has no kernel for a plain copy of contiguous memory."""
    torch.bitwise_not(source.view(torch.int32), out=to.view(torch.int32))


CopyMethod = Callable[[Tensor, Tensor], None]
COPY_METHODS: tuple[CopyMethod, ...] = (copy_by_driver, copy_by_torch_kernel)


def copy_methods(device: str) -> tuple[CopyMethod, ...]:
    if not device.startswith("cuda"):
        return COPY_METHODS
    from kernwright.judge.device.cuda.copy_kernel import copy_by_triton

    return (*COPY_METHODS, copy_by_triton)
