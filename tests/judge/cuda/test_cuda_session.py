"""What a session does about an answer; the worker's end of it needs no GPU to be played."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernwright.judge.cuda.place import is_short_of_memory
from kernwright.judge.cuda.session import CudaSession
from kernwright.judge.keepsakes import Keepsakes

FULL = "its calls cannot be captured: AcceleratorError: CUDA error: out of memory"
REFUSED = "its calls cannot be captured: RuntimeError: operation not permitted when stream is capturing"


class Worker:
    def __init__(self, *reasons: str | None) -> None:
        self.reasons = list(reasons)

    def request(self, message: dict[str, Any], *_: Any) -> dict[str, Any]:
        assert message == {"do": "open_loop"}
        reason = self.reasons.pop(0)
        return {"unavailable": reason} if reason else {"ok": True}


def opened(*reasons: str | None) -> tuple[str | None, Worker]:
    session = CudaSession.__new__(CudaSession)
    session.worker = worker = Worker(*reasons)  # type: ignore[assignment]
    session._keepsakes = Keepsakes(0, ())
    return session.open_loop(), worker


@pytest.mark.parametrize(
    ("reasons", "left", "tries"),
    [
        ((None,), None, 1),
        ((REFUSED, None), REFUSED, 1),
        ((FULL, None), None, 2),
        ((FULL, REFUSED, None), REFUSED, 2),
        ((FULL, FULL, None), FULL, 2),
    ],
)
def test_a_graph_that_finds_no_room_has_one_more_try(
    reasons: tuple[str | None, ...], left: str | None, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given_back.append(1))
    found, worker = opened(*reasons)
    assert found == left
    assert (len(reasons) - len(worker.reasons), len(given_back)) == (tries, tries - 1)


@pytest.mark.parametrize(
    ("error", "is_short"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the manual"), True),
        (RuntimeError("CUDA error: operation not permitted when stream is capturing"), False),
    ],
)
def test_want_of_memory_is_told_from_what_no_other_row_would_change(error: Exception, is_short: bool) -> None:
    assert is_short_of_memory(error) is is_short
