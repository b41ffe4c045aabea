"""A module that records gradients warns once that no kernel runs, also where torch.compile traces it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

import kernwright
from kernwright.nn import LayerNormScaleShift, MulAdd, RMSNorm, gradients

X, ROW = torch.randn(2, 3, 8), torch.zeros(2, 8)


@pytest.fixture(autouse=True)
def not_warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gradients, "_warned", set())
    torch._dynamo.reset()
    yield
    kernwright.prefer("best")


def warned(*calls: object) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for call in calls:
            call()  # type: ignore[operator]
    return [own for own in seen if "requires a gradient" in str(own.message)]


@pytest.mark.parametrize("compiled", [False, True])
def test_weights_that_require_gradients_are_warned_of_once_per_class(compiled: bool) -> None:
    def run(module: torch.nn.Module) -> object:
        own = torch.compile(module, fullgraph=True, backend="eager") if compiled else module
        return lambda: own(X)

    (seen,) = warned(*(run(RMSNorm(8)) for _ in range(2)), run(RMSNorm(8)))
    assert seen.category is kernwright.Fallback and "torch.no_grad()" in str(seen.message)
    if not compiled:
        assert seen.filename == __file__


def test_inference_is_not_warned_of() -> None:
    with torch.no_grad():
        assert warned(lambda: RMSNorm(8)(X)) == []
    with torch.inference_mode():
        assert warned(lambda: RMSNorm(8)(X)) == []
    assert warned(lambda: RMSNorm(8).requires_grad_(False)(X), lambda: LayerNormScaleShift(8)(X, ROW, ROW)) == []
    kernwright.prefer("torch")
    assert warned(lambda: RMSNorm(8)(X)) == [], "the reference was asked for"


def test_an_input_that_requires_a_gradient_counts() -> None:
    x = X.clone().requires_grad_()
    seen = warned(lambda: LayerNormScaleShift(8)(x, ROW, ROW), lambda: MulAdd()(x, ROW, ROW))
    assert [str(own.message).split()[0] for own in seen] == [
        "kernwright.nn.LayerNormScaleShift",
        "kernwright.nn.MulAdd",
    ]
