"""Rows: tensors of one shape with any leading axes, as views `[batch, token, channel]`. Nothing is copied.

A norm without modulation needs only the address of each row, so leading axes may be reordered and merged. A dense
tensor, transposed or not, is one sequence of rows. Heads cut out of a packed projection are a batch of sequences.
`native/rows.h` does the same for the native kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch import Tensor

from kernwright.ops._shared.folding import FoldedAxis, merged


def batches(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield `[batch, token, channel]` views of all tensors, one set per launch."""
    if tensors[0].numel() == 0:
        return
    axes = sorted(merged(*tensors), key=lambda axis: -axis.size)
    none = FoldedAxis(1, (0,) * len(tensors))
    if len(axes) > 1:  # the two longest axes; tokens are those whose rows are closer together
        batch, token = sorted(axes[:2], key=lambda axis: -axis.steps[-1])
    else:
        batch, token = none, axes[0] if axes else none
    for place in itertools.product(*(range(axis.size) for axis in axes[2:])):
        starts = [
            tensor.storage_offset() + sum(index * axis.steps[i] for index, axis in zip(place, axes[2:], strict=True))
            for i, tensor in enumerate(tensors)
        ]
        yield tuple(
            tensor.as_strided(
                (batch.size, token.size, tensor.shape[-1]), (batch.steps[i], token.steps[i], 1), starts[i]
            )
            for i, tensor in enumerate(tensors)
        )
