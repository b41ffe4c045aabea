"""Whom the short way takes, where a call goes on that it does not take, and what torch is told of what was written."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kernwright import ops
from kernwright.ops.modulation.implementations import DISPATCHERS as MODULATION
from kernwright.ops.norm_modulation.implementations import DISPATCHERS as NORM_MODULATION
from kernwright.ops.residual_norm.implementations import DISPATCHERS as RESIDUAL_NORM
from kernwright.runtime.long_way import LongWay

pytestmark = pytest.mark.filterwarnings("ignore::kernwright.runtime.dispatch.Fallback")
X, ROW = torch.ones(2, 3, 8), torch.zeros(2, 8)
Launches = Callable[[Callable[..., bool]], None]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """Has the short way end in a function of the test's own."""

    def install(launch: Callable[..., bool]) -> None:
        for dispatcher in (*MODULATION.values(), *NORM_MODULATION.values(), *RESIDUAL_NORM.values()):
            monkeypatch.setattr(dispatcher, "_latest", ("cuda", launch, (None, "close")))

    return install


def select(**changed: Any) -> Any:
    names = ("scale0", "shift0", "gate0", "scale1", "shift1", "gate1")
    return ops.norm_scale_shift_select(
        **{"x": X, "index": torch.ones(2, 3).int(), **dict.fromkeys(names, ROW), **changed}
    )


def residual_select(**changed: Any) -> Any:
    names = ("residual_gate", "scale0", "shift0", "gate0", "scale1", "shift1", "gate1")
    return ops.residual_norm_scale_shift_select(
        **{"x": X, "residual": X, "index": torch.ones(2, 3).int(), **dict.fromkeys(names, ROW), **changed}
    )


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: ops.add_norm(X, X, out=(X.clone(),)), r"out: has 1 tensor\(s\), add_norm gives 2"),
        (lambda: ops.add_norm(X, X, out=torch.empty(2, 2, 3, 8)), r"out: has 1 tensor\(s\), add_norm gives 2"),
        (lambda: ops.add_norm(X, X, out=(X.clone(), None)), "out: residual_out is a NoneType, not a tensor"),
        (lambda: ops.add_norm(X, 1.0), "residual: is a float, not a tensor"),
        (lambda: ops.add_norm(None, residual_in_fp32=True), "x: is a NoneType, not a tensor"),
        (lambda: select(gate0=None), "gate0: is a NoneType, not a tensor"),
        (lambda: ops.broadcast_add(X, 1.0), "b: is a float, not a tensor"),
    ],
)
@pytest.mark.parametrize("trains", [True, False])
def test_what_is_no_tensor_is_named_on_the_short_way_too(
    call: Any, named: str, trains: bool, launches: Launches
) -> None:
    def launch(*given: Any) -> bool:  # as a foreign function converts what it is given
        raise TypeError("Mismatched type on argument #1")

    launches(launch)
    with torch.set_grad_enabled(trains), pytest.raises(ValueError, match=f"^{named}"):
        call()


@pytest.mark.parametrize("way", ["short", "dispatcher", "watched"])
def test_one_tensor_for_two_results_is_refused_on_every_way(way: str, launches: Launches) -> None:
    launches(lambda *given: True)
    x = torch.nn.Parameter(X) if way == "watched" else X
    y, other, asked = torch.empty_like(X), torch.empty_like(X), "torch" if way == "dispatcher" else None
    with torch.no_grad():
        with pytest.raises(ValueError, match=r"^out: residual_out is the tensor of y, too"):
            ops.add_norm(x, X, backend=asked, out=(y, y))
        for twice, named in (((y, y, other), "residual_out is the tensor of y"), ((y, other, other), "gate_out is")):
            with pytest.raises(ValueError, match=f"^out: {named}"):
                residual_select(x=x, backend=asked, out=twice)


def test_one_output_may_come_in_a_list(launches: Launches) -> None:
    def launch(*given: Any) -> bool:
        if not isinstance(given[-1], Tensor):
            raise TypeError("Mismatched type on argument #7")
        return False

    launches(launch)
    y = torch.empty_like(X)
    ops.scale_shift(X, ROW, ROW, out=[y])  # type: ignore[arg-type]
    assert torch.equal(y, X)


def test_a_refused_call_keeps_no_outputs_of_its_own(launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    launches(lambda *given: made.extend(map(weakref.ref, given[-2:])) or False)
    monkeypatch.setattr(LongWay, "run", lambda *given: [own() for own in made])
    assert ops.add_norm(X, X) == [None, None]
    made.clear()
    assert ops.add_norm(X) == ops.add_norm(X, X, second=X) == []  # whatever it would be refused


def test_torch_is_told_what_a_launch_has_written(launches: Launches) -> None:
    launches(lambda *given: True)
    x, residual, y, total = (torch.ones(2, 8) for _ in range(4))
    ops.fused_add_rms_norm_(x, residual)
    ops.add_norm(x, residual, out=(y, total))
    assert [own._version for own in (x, residual, y, total)] == [1, 1, 1, 1]
    with torch.no_grad():
        ops.add_norm(x, residual, out=(y, total))
    assert y._version == 1


def test_a_gradient_that_needs_what_was_changed_is_an_error(launches: Launches) -> None:
    launches(lambda *given: True)
    x, w = torch.ones(2, 8), torch.ones(2, 8, requires_grad=True)
    loss = (x * w).sum()
    ops.fused_add_rms_norm_(x, torch.ones(2, 8))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_out_is_checked_for_a_tensor_of_a_class_of_its_own() -> None:
    x, y, total = torch.nn.Parameter(X), torch.empty_like(X), torch.empty_like(X)
    with pytest.raises(ValueError, match=r"^out: cannot be written where an input needs a gradient"):
        ops.add_norm(x, X, out=(y, total))
    with torch.no_grad():
        assert ops.add_norm(x, X, out=(y, total))[1] is total
        assert torch.equal(total, X + X)
        with pytest.raises(ValueError, match=r"^out: y is torch.float16"):
            ops.add_norm(x, X, out=(y.half(), total))
        with pytest.raises(ValueError, match=r"^out: y is torch.float32 .*, not"):
            ops.add_norm(x, X, out=(y[..., :1], total))


def test_in_place_goes_through_vmap() -> None:
    def normed(own: Tensor) -> Tensor:
        x, residual = own * 1, own * 2
        ops.fused_add_rms_norm_(x, residual)
        return x + residual

    own = torch.arange(48.0).view(2, 3, 8)
    torch.testing.assert_close(torch.vmap(normed)(own), normed(own))
