"""Preferences and graphs: a block inside the traced function is a part of its graph. All other preferences are read
when the graph runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import kernwright
from kernwright.core.op import define
from kernwright.runtime import preference
from kernwright.runtime.choice.fallback import CannotRun
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.preference import preferred
from kernwright.runtime.public_call.fast_path import fast_path
from kernwright.runtime.public_call.slow_path import SlowPath


@define(outputs=["y"], activations=["x"])
def traced_twice(x: Tensor) -> Tensor:
    return x * 2


RAN: list[str] = []
X = torch.ones(3)


def marked(name: str) -> Callable[..., Tensor]:
    def run(x: Tensor, out: Any = None) -> Tensor:
        RAN.append(name)
        return x * 2

    return run


def at_most_four(call: Any) -> str | None:
    return None if call.first.shape[0] <= 4 else "x has more than 4 rows"


_dispatcher = Dispatcher(
    traced_twice,
    [
        Implementation(backend="cpu", contract="close", load=lambda: marked("cpu"), requires=(at_most_four,)),
        Implementation(backend="triton", contract="close", load=lambda: marked("triton"), requires=(at_most_four,)),
    ],
)
_twice = fast_path(SlowPath(_dispatcher))


def twice(x: Tensor, backend: Any = None) -> Tensor:
    return _twice((x,), backend, None, None)


@pytest.fixture(autouse=True)
def nothing_preferred(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(preference.BACKEND_VARIABLE, raising=False)
    monkeypatch.delenv(preference.STRICT_VARIABLE, raising=False)
    preference.reset()
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    assert not preference._traced
    preference.reset()


def compiled(
    function: Callable[..., Any], fullgraph: bool = True
) -> tuple[Callable[..., Any], CompileCounterWithBackend]:
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(function, fullgraph=fullgraph, backend=counter), counter


def ran(call: Callable[..., Any], *given: Any) -> list[str]:
    RAN.clear()
    call(*given)
    return list(RAN)


def test_a_preference_that_changes_between_calls_is_followed_without_another_graph() -> None:
    own, counter = compiled(lambda x: twice(x) + 1)
    assert ran(own, X) == ["cpu"]
    with kernwright.preferring("triton"):
        assert ran(own, X) == ["triton"]
    assert ran(own, X) == ["cpu"]
    kernwright.prefer("triton")
    assert ran(own, X) == ["triton"]
    with kernwright.preferring("torch"):
        assert ran(own, X) == []
    preference.reset()
    assert ran(own, X) == ["cpu"]
    assert counter.frame_count == 1


def test_strictness_that_changes_between_calls_is_followed() -> None:
    own, counter = compiled(lambda x: twice(x) + 1)
    big = torch.ones(9)
    assert ran(own, big) == []
    with kernwright.preferring(strict=True), pytest.raises(CannotRun, match="would run its reference"):
        own(big)
    assert ran(own, big) == []
    assert counter.frame_count == 1


def test_a_block_inside_the_function_is_a_part_of_its_graph() -> None:
    def mixed(x: Tensor) -> Tensor:
        x = twice(x)
        with kernwright.preferring("triton"):
            x = twice(x)
            with kernwright.preferring("torch"):
                x = twice(x)
            with kernwright.preferring("best"):
                x = twice(x, "triton")
                x = twice(x)
            x = twice(x)
        return twice(x)

    own, counter = compiled(mixed)
    assert ran(own, X) == ran(mixed, X) == ["cpu", "triton", "triton", "cpu", "triton", "cpu"]
    with kernwright.preferring("triton"):  # the innermost block counts, and "best" cancels outer ones
        expected = ["triton", "triton", "triton", "cpu", "triton", "triton"]
        assert ran(own, X) == ran(mixed, X) == expected
    assert torch.equal(own(X), mixed(X))
    assert counter.frame_count == 1 and preferred() is None


def test_strict_inside_the_function_is_a_part_of_its_graph() -> None:
    def careful(x: Tensor) -> Tensor:
        with kernwright.preferring(strict=True):
            return twice(x)

    def careless(x: Tensor) -> Tensor:
        with kernwright.preferring(strict=False):
            return twice(x)

    own, _ = compiled(careful)
    assert ran(own, X) == ["cpu"]
    with pytest.raises(CannotRun, match="would run its reference"):
        own(torch.ones(9))
    with kernwright.preferring(strict=True):
        assert ran(compiled(careless)[0], torch.ones(9)) == []
    assert not preference.is_strict()


def test_a_block_that_cannot_be_met_says_so_when_the_graph_runs() -> None:
    def wishful(x: Tensor) -> Tensor:
        with kernwright.preferring("triton"):
            return twice(x)

    with pytest.raises(CannotRun, match=r"cannot run on triton: triton \(close\): x has more than 4 rows"):
        compiled(wishful)[0](torch.ones(9))


def test_a_block_with_a_graph_break_inside_still_holds() -> None:
    def broken(x: Tensor) -> Tensor:
        with kernwright.preferring("triton"):
            x = twice(x)
            torch._dynamo.graph_break()
            x = twice(x)
        return twice(x)

    own, _ = compiled(broken, fullgraph=False)
    for _ in range(2):
        assert ran(own, X) == ["triton", "triton", "cpu"]


def test_a_block_inside_the_function_can_be_entered_again() -> None:
    def mixed(x: Tensor) -> Tensor:
        block, other = kernwright.preferring("triton"), kernwright.preferring("torch")
        with block:
            x = twice(x)
            with other, block:
                x = twice(x)
        return twice(x)

    own, _ = compiled(mixed)
    assert ran(own, X) == ran(mixed, X) == ["triton", "triton", "cpu"]
    assert ran(own, X) == ["triton", "triton", "cpu"] and preferred() is None


def test_a_decorated_function_is_a_part_of_the_graph_with_its_preference() -> None:
    wishful = kernwright.preferring("triton")(lambda x: twice(x))
    own, counter = compiled(lambda x: twice(wishful(wishful(x))))
    assert ran(own, X) == ["triton", "triton", "cpu"] and counter.frame_count == 1


def test_a_block_made_outside_of_the_function_breaks_its_graph_and_still_holds() -> None:
    block = kernwright.preferring("triton")

    def wishful(x: Tensor) -> Tensor:
        with block:
            x = twice(x)
        return twice(x)

    own, _ = compiled(wishful, fullgraph=False)
    for _ in range(2):
        assert ran(own, X) == ["triton", "cpu"]


def test_a_preference_for_the_program_breaks_the_graph_and_holds_from_there() -> None:
    def settled(x: Tensor) -> Tensor:
        x = twice(x)
        kernwright.prefer("triton", strict=True)
        return twice(x)

    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(settled)[0](X)
    assert preferred() is None
    own, _ = compiled(settled, fullgraph=False)
    assert ran(own, X) == ["cpu", "triton"]
    assert ran(twice, X) == ["triton"] and preference.is_strict()
    assert ran(own, X) == ["triton", "triton"]


def test_a_preference_that_conflicts_with_gradients_is_an_error_for_parameters_too() -> None:
    x = torch.nn.Parameter(X)
    for own in (x, X.clone().requires_grad_()):
        with pytest.raises(CannotRun, match="an input needs a gradient"):
            twice(own, "triton")
        with kernwright.preferring(strict=True), pytest.raises(CannotRun, match="an input needs a gradient"):
            twice(own)
    assert ran(twice, x) == []


def wishing(setting: Callable[[], Any], function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def wishful(x: Tensor) -> Tensor:
        with setting():
            return function(x)

    return wishful


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: twice(x, "triton"), "cannot run on triton"),
        (wishing(lambda: kernwright.preferring("triton"), twice), "cannot run on triton"),
        (wishing(lambda: kernwright.preferring(strict=True), twice), "would run its reference"),
    ],
)
def test_a_preference_that_conflicts_with_gradients_is_an_error_in_a_graph_too(function: Any, words: str) -> None:
    x = X.clone().requires_grad_()
    with pytest.raises(Exception, match=words):
        compiled(function)[0](x)
    assert ran(compiled(wishing(lambda: kernwright.preferring("torch"), twice))[0], x) == []


def test_a_preference_for_a_missing_kernel_is_an_error_in_a_graph_too() -> None:
    bare = Dispatcher(traced_twice)
    function = wishing(lambda: kernwright.preferring("triton"), bare)
    with pytest.raises(Exception, match="cannot run on triton"):
        compiled(function)[0](X)
    for setting in (
        lambda: kernwright.preferring("torch"),
        lambda: kernwright.preferring("best"),
        lambda: kernwright.preferring(strict=True),
    ):
        assert torch.equal(compiled(wishing(setting, bare))[0](X), X * 2)


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program_keeps_its_blocks(strict: bool) -> None:
    class Wishful(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with kernwright.preferring("triton"):
                x = twice(x)
            return twice(x)

    program = torch.export.export(Wishful(), (X,), strict=strict).module()
    assert ran(program, X) == ["triton", "cpu"]
    with kernwright.preferring("torch"):
        assert ran(program, X) == ["triton"]


@pytest.mark.parametrize("wishes", [(None, None), ("torch", None, None), (preference.BEST, None, True)])
def test_the_library_op_passes_opcheck_with_every_preference_and_without(wishes: tuple[Any, ...]) -> None:
    for x in (torch.ones(3), torch.ones(3, requires_grad=True)):
        found = torch.library.opcheck(torch.ops.kernwright.traced_twice.default, (x, *wishes))
        assert set(found.values()) == {"SUCCESS"}
