"""Work of a GPU session before it asks a worker. The tests need no GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernwright.judge.device.cuda.session import CudaSession
from kernwright.judge.protocol.messages import LoopAnswer, OpenLoop, Request
from kernwright.judge.session.retained_outputs import RetainedOutputs
from kernwright.judge.worker.cuda.worker_device import is_short_of_memory

GIB = 2**30


class Worker:
    def request(self, message: Request, *_: Any) -> LoopAnswer:
        assert message == OpenLoop()
        return LoopAnswer()


@pytest.mark.parametrize(("free", "gives_back"), [(9 * GIB, 0), (1 * GIB, 1)])
def test_a_graph_may_use_memory_that_the_judge_does_not_need(
    free: int, gives_back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 139 * GIB))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given_back.append(1))
    session = CudaSession.__new__(CudaSession)
    session.worker, session.keeper = Worker(), SimpleNamespace(device=0)  # type: ignore[assignment]
    session._retained = RetainedOutputs(0, ())
    assert session.open_loop() is None
    assert len(given_back) == gives_back


@pytest.mark.parametrize(
    ("error", "is_short"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the manual"), True),
        (RuntimeError("error code: CUDA_ERROR_OUT_OF_MEMORY"), True),
        (RuntimeError("CUDA error: operation not permitted when stream is capturing"), False),
    ],
)
def test_lack_of_memory_is_distinguished_from_failures_of_every_row(error: Exception, is_short: bool) -> None:
    assert is_short_of_memory(error) is is_short
