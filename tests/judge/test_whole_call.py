"""A call is everything that its caller gets and pays for: all outputs of all calls, and the time for freeing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernwright.judge.record.verdict import GOOD, RowVerdict
from kernwright.judge.request import JudgeRequest, judge

MIX_TASK = Path(__file__).parents[1] / "exploits" / "mix_task"

FAST = """
import sys

import torch

calls = 0


def fast(x, w, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps).mul_(1 + w).tanh_()


def chain(x, w, eps):
    centred = x - x.mean(-1, keepdim=True)
    inverse = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    return torch.tanh(centred * inverse * (1 + w))

"""
NEGATED = """
def mix(x, w, *, eps):
    return torch._neg_view(fast(x, w, eps))
"""
ANOTHER_IN_RUNS = """
def mix(x, w, *, eps):
    global calls
    calls += x.shape[0] == 4
    y = fast(x, w, eps)
    return y if calls < 30 or x.shape[0] != 4 else y.view(torch.int32).flatten()[:1]
"""
PAID_ON_RELEASE = """
class Ticket:
    def __init__(self, x, w, eps):
        self.order = torch.ones_like(x), torch.ones_like(w), eps

    def __del__(self):
        if not sys.is_finalizing():
            for _ in range(3):
                chain(*self.order)


def mix(x, w, *, eps):
    y = fast(x, w, eps)
    y.ticket = Ticket(x, w, eps)
    return y
"""


@pytest.fixture
def judged(tmp_path: Path, private_tmp: Path, quiet: Any, write_candidate: Any) -> Any:
    def judged(source: str) -> RowVerdict:
        candidate = write_candidate(tmp_path / "candidate", FAST + source, op="mix")
        request = JudgeRequest(
            task=str(MIX_TASK), candidate=candidate, rows="mix_small", device="cpu", ledger=tmp_path / "ledger",
            wait_s=600.0,
        )  # fmt: skip
        return judge(request, quiet).rows[0]

    return judged


@pytest.mark.slow
def test_the_content_of_memory_is_not_what_a_caller_gets(judged: Any) -> None:
    row = judged(NEGATED)
    assert row.verdict == "incorrect" and "not what its memory holds" in row.reasons[0]


@pytest.mark.slow
def test_outputs_of_a_run_of_calls_are_checked_too(judged: Any) -> None:
    """The content is checked, not only the address. Before, the judge said `faster`."""
    row = judged(ANOTHER_IN_RUNS)
    assert row.verdict == "incorrect" and "torch.int32 [1]" in row.reasons[0]


@pytest.mark.clock
@pytest.mark.slow
def test_a_gain_that_slow_freeing_pays_for_does_not_count(judged: Any) -> None:
    """Freeing each output runs three eager chains, which is outside the timed region. Before, the judge said `faster`,
    though the candidate takes three times as long for a caller that calls in a loop."""
    row = judged(PAID_ON_RELEASE)
    assert row.verdict not in GOOD, row.reasons
