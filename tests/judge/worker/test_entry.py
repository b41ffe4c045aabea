"""A worker compiles rows with torch.compile: each function once, and independently of the others."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from kernwright.judge.worker.entry import own_code


def doubled(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by


@torch._dynamo.config.patch(recompile_limit=2)
def test_functions_with_the_same_text_are_compiled_separately() -> None:
    """If functions shared one code object, torch would recompile it for each shape, up to a limit, and then stop."""
    counter = CompileCounter()
    rows = [(torch.compile(own_code(doubled), backend=counter, fullgraph=True, dynamic=False), n) for n in range(2, 8)]
    for _ in range(3):
        for function, size in rows:
            assert torch.equal(function(torch.ones(size)), torch.full((size,), 2.0))
    assert counter.frame_count == len(rows)


def test_a_functions_defaults_and_names_come_along() -> None:
    closed = 3.0

    def tripled(x: Tensor, extra: float = 1.0, *, by: float = 2.0) -> Tensor:
        return x * by * closed + extra

    own = own_code(tripled)
    assert own.__code__ is not tripled.__code__
    assert own(torch.ones(1)).item() == 7.0
    assert own(torch.ones(1), by=1.0).item() == 4.0
