"""Native code that several families share: headers in `native/`, which every library that includes them lists.

A library's digest covers what it lists, so a changed header is another library.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "native"

CPU_HEADERS = tuple(_FOLDER / name for name in ("tensors.h", "overlaps.h", "reader.h", "folding.h"))
CUDA_HEADERS = (
    *CPU_HEADERS,
    *(_FOLDER / name for name in ("calling.h", "allocation.cuh", "elements.cuh", "launching.cuh", "totals.cuh")),
)
TOKEN_HEADERS = (
    *CUDA_HEADERS,
    *(_FOLDER / name for name in ("token_norm.cuh", "token_rows.cuh", "token_statistics.cuh", "token_variant.h")),
)
