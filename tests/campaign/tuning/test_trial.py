"""Tensors of a trial have the layout of their row."""

from __future__ import annotations

import pytest
import torch

from kernwright.campaign.tuning.trial import placed
from kernwright.tasks.tensor import ConcreteTensor


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("strides", [(5, 1), (8, 1), (0, 1)])
def test_a_tensor_lies_as_its_row_says(strides: tuple[int, int], offset: int) -> None:
    spec = ConcreteTensor(shape=(4, 5), dtype="fp32", strides=strides, offset=offset)
    values = torch.randn(1 if strides[0] == 0 else 4, 5).expand(4, 5)
    own = placed(spec, torch.device("cpu"), values)
    assert torch.equal(own, values)
    assert (own.stride(), own.storage_offset()) == (strides, offset)
    assert not placed(spec, torch.device("cpu")).any()
