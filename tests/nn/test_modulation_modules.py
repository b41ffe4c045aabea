"""MulAdd against the chain that models write by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernwright.nn import MulAdd
from kernwright.runtime.call import BadArgument

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


def test_it_has_no_state_and_compiles_and_trains() -> None:
    own = MulAdd()
    assert not own.state_dict()
    a, b = torch.randn(B, S, D), torch.randn(D, requires_grad=True)
    with torch.no_grad():
        compiled = torch.compile(own, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(a, b, a), a * b + a)
    own(a, b, a).sum().backward()
    torch.testing.assert_close(b.grad, a.sum((0, 1)))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"a": None}, "a: is a NoneType, not a tensor"),
        ({"a": torch.zeros(B, S, D).int()}, "a: is torch.int32, not floating point"),
        ({"b": torch.zeros(D + 1)}, rf"b: is \[{D + 1}\], which does not broadcast over a, \[{B}, {S}, {D}\]"),
        ({"b": [1.0]}, "b: is a list, not a tensor"),
        ({"c": torch.zeros(B, 4, 1, D)}, f"c: {S} tokens do not divide into 4 frames"),
        ({"c": torch.zeros(D, device="meta")}, "c: is on meta, a is on cpu"),
        ({"k": "1"}, "k: is a str, not a number"),
    ],
)
def test_errors_use_the_modules_own_names(changed: dict[str, Any], named: str) -> None:
    given = {"a": torch.zeros(B, S, D), "b": torch.zeros(D), "c": torch.zeros(D)} | changed
    with pytest.raises(BadArgument, match=f"^{named}"):
        MulAdd()(**given)
