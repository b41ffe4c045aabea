"""Memory that the judge lends: torch's cache is released before memory is reported as too small."""

from __future__ import annotations

import pytest
import torch

from kernwright.judge.device.cuda.memory.region import lend
from kernwright.judge.device.problems import DeviceFull
from kernwright.judge.system.cuda_driver import CudaDriverError, LentMemory


@pytest.mark.parametrize("refusals", [0, 1, 2])
def test_memory_is_asked_for_again_when_torch_has_given_its_own_up(
    refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def create(size: int, device: int) -> str:
        done.append("asked")
        if done.count("asked") <= refusals:
            raise CudaDriverError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY")
        return "lent"

    monkeypatch.setattr(LentMemory, "create", create)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("given up"))
    if refusals == 2:
        with pytest.raises(DeviceFull, match=r"no 3\.0 GiB on the GPU for a row's inputs: cuMemCreate"):
            lend(3 * 2**30, 0, "a row's inputs")
    else:
        assert lend(3 * 2**30, 0, "a row's inputs") == "lent"  # type: ignore[comparison-overlap]
    assert done == ["asked", "given up", "asked"][: 1 + 2 * bool(refusals)]
