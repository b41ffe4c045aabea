"""Copy kernel: a plain copy in Triton, one of the methods of the copy benchmark."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Words of 8 bytes: 16 bytes per thread. The fastest of all block sizes up to 4096 on an H200, for 50 MB and more.
BLOCK = 256
WARPS = 4


@triton.jit  # type: ignore[untyped-decorator]
def _copy(target, source, words, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < words
    tl.store(target + place, tl.load(source + place, inside), inside)


def copy_by_triton(to: Tensor, source: Tensor) -> None:
    """Copy contiguous memory whose size is a multiple of 8 bytes."""
    words = source.numel() * source.element_size() // 8
    _copy[triton.cdiv(words, BLOCK),](
        to.view(torch.int64), source.view(torch.int64), words, BLOCK=BLOCK, num_warps=WARPS
    )
