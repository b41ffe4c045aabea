"""MulAdd against the chain that models write out."""

from __future__ import annotations

import pytest
import torch

from kernwright.nn import MulAdd

B, S, F, D = 2, 6, 3, 16


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("sizes", [(D,), (B, 1, D), (B, S, D)])
def test_it_is_the_chain(sizes: tuple[int, ...], k: int) -> None:
    a, b, c = torch.randn(B, S, D), torch.randn(sizes), torch.randn(B, S, D)
    assert torch.equal(MulAdd()(a, b, c, k=k), a * (k + b) + c)


def test_a_gate_per_frame() -> None:
    a, b, c = torch.randn(B, S, D), torch.randn(B, F, 1, D), torch.randn(B, S, D)
    expected = (a.unflatten(1, (F, -1)) * b).flatten(1, 2) + c
    assert torch.equal(MulAdd()(a, b, c), expected)


def test_it_keeps_nothing_and_compiles_and_trains() -> None:
    own = MulAdd()
    assert not own.state_dict()
    a, b = torch.randn(B, S, D), torch.randn(D, requires_grad=True)
    with torch.no_grad():
        compiled = torch.compile(own, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(a, b, a), a * b + a)
    own(a, b, a).sum().backward()
    torch.testing.assert_close(b.grad, a.sum((0, 1)))
