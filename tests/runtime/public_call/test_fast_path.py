"""Calls that take the fast path, calls that do not, and notes to torch about written tensors."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.testing._internal.two_tensor import TwoTensor

import kernwright
from kernwright import ops
from kernwright.core.errors import KernwrightError
from kernwright.ops.modulation.family import OPS as MODULATION
from kernwright.ops.norm_modulation.family import OPS as NORM_MODULATION
from kernwright.ops.residual_norm.family import OPS as RESIDUAL_NORM
from kernwright.runtime import preference
from kernwright.runtime.call import BadArgument
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.outputs import rows_like
from kernwright.runtime.public_call.slow_path import SlowPath

pytestmark = pytest.mark.filterwarnings("ignore::kernwright.Fallback")
X, ROW = torch.ones(2, 3, 8), torch.zeros(2, 8)
Launches = Callable[[Callable[..., bool]], None]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """Replace the last step of the fast path by a function of the test."""

    def install(launch: Callable[..., bool]) -> None:
        for own in (*MODULATION.values(), *NORM_MODULATION.values(), *RESIDUAL_NORM.values()):
            monkeypatch.setattr(own.dispatcher, "_latest", ("cuda", launch, (None, "close")))

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
def test_an_argument_that_is_no_tensor_is_named_on_the_fast_path_too(
    call: Any, named: str, trains: bool, launches: Launches
) -> None:
    def launch(*given: Any) -> bool:  # convert arguments as a foreign function does
        raise TypeError("Mismatched type on argument #1")

    launches(launch)
    with torch.set_grad_enabled(trains), pytest.raises(ValueError, match=f"^{named}"):
        call()


@pytest.mark.parametrize("way", ["short", "dispatcher", "watched"])
def test_one_tensor_for_two_results_is_refused_on_every_path(way: str, launches: Launches) -> None:
    launches(lambda *given: True)
    x = torch.nn.Parameter(X) if way == "watched" else X
    y, other, asked = torch.empty_like(X), torch.empty_like(X), "torch" if way == "dispatcher" else None
    with torch.no_grad():
        with pytest.raises(ValueError, match=r"^out: residual_out is the same tensor as y"):
            ops.add_norm(x, X, backend=asked, out=(y, y))
        for twice, named in (
            ((y, y, other), "residual_out is the same tensor as y"),
            ((y, other, other), "gate_out is"),
        ):
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
    monkeypatch.setattr(SlowPath, "run", lambda *given: [own() for own in made])
    for given in ((X, X), (X,), (X, X.half(), None, None, X)):
        assert ops.add_norm(*given) == [None, None]
        made.clear()


def test_torch_learns_which_tensors_a_launch_has_written(launches: Launches) -> None:
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


WINDOWS = torch.randn(127).unfold(0, 64, 1)[:8]  # rows that overlap, without gaps in the last axis


@pytest.mark.parametrize("asked", ["torch", None])
def test_results_of_windows_have_no_gaps(asked: Any) -> None:
    """torch's empty_like would give them columns, and kernels write rows."""
    row = torch.randn(64)
    assert torch.empty_like(WINDOWS).stride(-1) != 1
    y = ops.norm_scale_shift(WINDOWS, row, row, backend=asked)
    expected = ops.norm_scale_shift(WINDOWS.contiguous(), row, row, backend="torch")
    torch.testing.assert_close(y, expected)
    assert rows_like(WINDOWS).stride() == (64, 1) and rows_like(X).stride() == X.stride()
    turned = torch.empty(4, 3, 8).transpose(0, 1)
    assert rows_like(turned, torch.float64).stride() == turned.stride(), "as x lies, wherever that has no gaps"


def test_a_tensor_on_another_device_is_named_after_a_call_on_the_fast_path(launches: Launches) -> None:
    def launch(*given: Any) -> bool:
        raise RuntimeError("Cannot pack tensors on meta")

    launches(launch)
    with pytest.raises(ValueError, match=r"^residual: is on meta, x is on cpu"):
        ops.add_norm(X, X.to("meta"))
    with pytest.raises(ValueError, match=r"^out: y is on meta"):
        ops.add_norm(X, X, out=(X.to("meta"), X.clone()))
    with pytest.raises(RuntimeError, match="Cannot pack"):
        ops.add_norm(X, X)  # its own error, which must not be hidden


def test_a_tensor_subclass_with_its_own_dispatch_may_be_any_argument(launches: Launches) -> None:
    launches(lambda *given: False)
    wrapped = TwoTensor(torch.ones(8), torch.ones(8))
    found = ops.scale_shift(X, wrapped, ROW)
    assert isinstance(found, TwoTensor)
    torch.testing.assert_close(found.a, ops.scale_shift(X, torch.ones(8), ROW, backend="torch"))


@pytest.mark.parametrize("way", ["short", "dispatcher"])
def test_outputs_in_one_memory_are_refused(way: str, launches: Launches) -> None:
    launches(lambda *given: True)
    asked: Any = "torch" if way == "dispatcher" else None
    y = torch.empty_like(X)
    with torch.no_grad(), pytest.raises(ValueError, match=r"^out: residual_out shares memory with y"):
        ops.add_norm(X, X, backend=asked, out=(y, y.view(X.shape)))


def test_an_output_that_overlaps_is_refused_but_not_one_beside_or_in_place() -> None:
    both, row = torch.randn(7, 8), torch.randn(8)
    x, shifted = both[:6], both[1:]
    with pytest.raises(ValueError, match=r"^out: y overlaps x"):
        ops.scale_shift(x, row, row, backend="torch", out=shifted)
    expected = ops.scale_shift(x, row, row, backend="torch")
    wide = torch.zeros(6, 16)
    wide[:, :8] = x
    ops.scale_shift(wide[:, :8], row, row, backend="torch", out=wide[:, 8:])
    assert torch.equal(wide[:, 8:], expected)
    ops.scale_shift(x, row, row, backend="torch", out=x)
    assert torch.equal(x, expected)
    square, half = torch.zeros(3, 3, 8), torch.zeros(6, 16, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"^out: y overlaps x"):  # begins at x, with other strides
        ops.scale_shift(square, row, row, backend="torch", out=square.transpose(0, 1))
    with pytest.raises(ValueError, match=r"^out: y overlaps shift"):
        ops.scale_shift(torch.zeros(3, 3, 8), row, square[:1], backend="torch", out=square)
    with pytest.raises(ValueError, match=r"^out: y overlaps x"):  # the same elements in another width
        ops.rms_modulate(half[:, :8], row, row, backend="torch", out=half.view(torch.float32))


@pytest.mark.parametrize("way", ["short", "dispatcher"])
def test_an_output_that_needs_a_gradient_is_refused(way: str, launches: Launches) -> None:
    launches(lambda *given: True)
    asked: Any = "torch" if way == "dispatcher" else None
    with pytest.raises(ValueError, match=r"^out: needs a gradient"):
        ops.scale_shift(X, ROW, ROW, backend=asked, out=torch.zeros_like(X, requires_grad=True))


def test_the_negative_bit_is_seen_before_a_kernel_is_chosen() -> None:
    negative = torch._neg_view(ROW + 2)
    refused = kernwright.explain("norm_scale_shift", X, negative, ROW).answers[0].refusal
    assert refused == "scale has torch's negative bit, which its memory does not show"
    expected = ops.norm_scale_shift(X, -(ROW + 2), ROW, backend="torch")
    torch.testing.assert_close(ops.norm_scale_shift(X, negative, ROW, backend="torch"), expected)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: ops.norm_scale_shift(X, ROW, ROW, eps=[1e-6]), "eps: is a list, not a number"),
        (lambda: ops.norm_scale_shift(X, ROW, ROW, eps=None), "eps: is a NoneType, not a number"),
        (lambda: ops.norm_scale_shift(X, ROW, ROW, norm_type=["rms"]), "norm_type: is a list, not a string"),
        (lambda: ops.scale_shift(X, ROW, ROW, out=3), "out: is a int, not a tensor or a list of them"),
    ],
)
def test_every_wrong_argument_is_named(call: Any, named: str, launches: Launches) -> None:
    launches(lambda *given: False)
    with pytest.raises(ValueError, match=f"^{named}"):
        call()


def foreign_words(*given: Any, **named: Any) -> bool:
    """Raise as a native kernel does for wrong arguments: a plain error with its own text."""
    raise ValueError("scale: has 7 channels, x has 8")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"x": X.int()}, "x: is torch.int32, not floating point"),
        ({"scale": ROW[:, :7]}, r"scale: is \[2, 7\], which does not broadcast over x, \[2, 3, 8\]"),
        ({"shift": ROW.bool()}, "shift: is torch.bool, not floating point"),
        ({"weight": ROW}, r"weight: is \[2, 8\], it must be \[8\], the width of x"),
        ({"bias": ROW[0]}, "bias: comes only with a weight"),
        ({"norm_type": "batch"}, "norm_type: is 'layer' or 'rms', not 'batch'"),
        ({"out": X.half()}, r"out: y is torch.float16 \[2, 3, 8\], not torch.float32"),
        ({"out": torch.empty(3)}, r"out: y is torch.float32 \[3\], not torch.float32 \[2, 3, 8\]"),
    ],
)
def test_a_wrong_argument_has_the_same_message_in_every_call(
    changed: dict[str, Any], named: str, launches: Launches
) -> None:
    """The first call, a repeated call that goes straight to a kernel with its own texts, and a call of an op of
    torch.library."""
    given = {"x": X, "scale": ROW, "shift": ROW} | changed
    said = []
    for way in ("cold", "warm", "parameter"):
        launches(foreign_words if way != "cold" else lambda *given: False)
        own = given | ({"x": torch.nn.Parameter(given["x"], requires_grad=False)} if way == "parameter" else {})
        with pytest.raises(BadArgument, match=f"^{named}") as error:
            ops.norm_scale_shift(**own)
        assert isinstance(error.value, ValueError) and isinstance(error.value, KernwrightError)
        assert error.value.__context__ is None or error.value.__suppress_context__, "nobody else's words above it"
        said.append(str(error.value))
    assert said[0] == said[1] == said[2]


def test_a_kernels_own_error_is_raised_if_the_arguments_are_right(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NORM_MODULATION["norm_scale_shift"].dispatcher, "implementations", [Refusing()])
    monkeypatch.setattr(NORM_MODULATION["norm_scale_shift"].dispatcher, "_chosen", {})
    launches(foreign_words)
    for x in (X, torch.nn.Parameter(X, requires_grad=False)):
        with pytest.raises(ValueError, match=r"^scale: has 7 channels, x has 8$") as error:
            ops.norm_scale_shift(x, ROW, ROW)
        assert not isinstance(error.value, BadArgument)


class Refusing(Implementation):
    """An op whose foreign function refuses every call, the first and later ones."""

    def __init__(self) -> None:
        super().__init__("cuda", "close", lambda: foreign_words)


@pytest.mark.parametrize("place", ["x", "scale", "out"])
@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: X.to_sparse(), "sparse_coo, not a tensor with strides"),
        (lambda: ROW.to_sparse_csr(), "sparse_csr, not a tensor with strides"),
        (lambda: X.to_mkldnn(), "mkldnn, not a tensor with strides"),
        (lambda: torch.nested.nested_tensor([ROW, ROW]), "nested, not one tensor"),
        (lambda: torch.nested.nested_tensor([ROW, ROW], layout=torch.jagged), "nested, not one tensor"),
        (lambda: torch.nn.parameter.UninitializedParameter(requires_grad=False), "not initialized"),
        (lambda: torch.quantize_per_tensor(ROW, 0.1, 0, torch.qint8), "torch.qint8"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # torch's own warning about a deprecation
def test_a_strange_tensor_is_named(make: Any, named: str, place: str, launches: Launches) -> None:
    strange = make()
    calls: list[Any] = [
        (ops.norm_scale_shift, {"x": X, "scale": ROW, "shift": ROW, place: strange}),
        (ops.scale_shift, {"x": X, "scale": ROW, "shift": ROW, place: strange}),
    ]
    for own, given in calls:
        said = []
        for way in ("cold", "warm"):
            launches(as_a_foreign_function if way == "warm" else lambda *given: False)
            with pytest.raises(BadArgument) as error:
                own(**given)
            said.append(str(error.value))
        assert said[0] == said[1]
        assert said[0].startswith(f"{place}: {'y ' * (place == 'out')}is {named}")


def as_a_foreign_function(*given: Any) -> bool:
    """Raise torch's own error for such tensors, as a foreign function does."""
    for own in given:
        if isinstance(own, Tensor) and (own.layout != torch.strided or own.is_nested or own.is_quantized):
            raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
    raise ValueError("scale: has 0 channels, x has 8")


def test_a_float_of_eight_bits_that_torch_does_not_compute_with_is_named() -> None:
    for place in ("x", "scale", "shift"):
        given = {"x": X, "scale": ROW, "shift": ROW}
        for own in (ops.norm_scale_shift, ops.scale_shift):
            with pytest.raises(BadArgument, match=rf"^{place}: is torch.float8_e4m3fn: .*not (implemented|supported)"):
                own(**given | {place: given[place].to(torch.float8_e4m3fn)})


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy

    expected = ops.norm_scale_shift(X, ROW, ROW, eps=0.5)
    for own in (numpy.float32(0.5), numpy.float64(0.5), Fraction(1, 2)):
        for backend in ("cpu", "torch", None):
            found = ops.norm_scale_shift(X, ROW, ROW, eps=own, backend=backend)  # type: ignore[arg-type]
            torch.testing.assert_close(found, expected)
        parameter = torch.nn.Parameter(X, requires_grad=False)
        torch.testing.assert_close(ops.norm_scale_shift(parameter, ROW, ROW, eps=own), expected)  # type: ignore[arg-type]


def test_several_outputs_are_returned_as_one_tuple() -> None:
    outs = [torch.empty_like(X), torch.empty_like(X)]
    assert type(ops.add_norm(X, X, backend="torch", out=outs)) is tuple


def forwards(function: Callable[..., Any], x: Tensor, tangent: Tensor) -> Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent))).tangent  # type: ignore


@pytest.mark.parametrize("way", ["dual", "jvp", "jvp of vmap", "jacfwd"])
@pytest.mark.parametrize("op", ["norm_scale_shift", "scale_shift"])
def test_forward_derivatives_are_those_of_the_reference(op: str, way: str, launches: Launches) -> None:
    """A kernel ignores tangents, so its result would have none, which looks like zero."""
    launches(lambda *_: pytest.fail("a kernel ran"))
    x, scale, tangent = (torch.randn(2, 3, 8, dtype=torch.float32) for _ in range(3))
    reference = {**MODULATION, **NORM_MODULATION}[op].op.reference
    found = []
    for function in (getattr(ops, op), reference):
        own = lambda given, function=function: function(given, scale, scale)  # noqa: E731
        if way == "dual":
            found.append(forwards(own, x, tangent))
        elif way == "jvp":
            found.append(torch.func.jvp(own, (x,), (tangent,))[1])
        elif way == "jvp of vmap":
            found.append(torch.func.jvp(torch.func.vmap(own), (x[None],), (tangent[None],))[1])
        else:
            found.append(torch.func.jacfwd(own)(x))
    assert found[0].abs().max() > 0.1
    torch.testing.assert_close(found[0], found[1])


def test_arguments_without_tangents_next_to_others_with_run_as_usual() -> None:
    x, scale, out = torch.randn(2, 3, 8), torch.randn(2, 8), torch.empty(2, 3, 8)
    with forward_ad.dual_level():
        assert ops.norm_scale_shift(x, scale, scale, out=out) is out
        dual = forward_ad.make_dual(x, x)
        with pytest.raises(ValueError, match="out: cannot be written where an input needs a gradient"):
            ops.norm_scale_shift(dual, scale, scale, out=out)
    assert "gradient" not in str(kernwright.explain("norm_scale_shift", x, scale, scale))


def test_an_overlapping_output_is_refused_on_the_fast_path_too(launches: Launches) -> None:
    ran = []
    launches(lambda *given: ran.append(given) or True)  # type: ignore[func-returns-value]
    memory = torch.zeros(96)
    x, row, apart = memory[:48].view(2, 3, 8), torch.zeros(8), memory[48:].view(2, 3, 8)
    with pytest.raises(ValueError, match="out: y overlaps x"):
        ops.norm_scale_shift(x, row, row, out=memory[8:56].view(2, 3, 8))
    with pytest.raises(ValueError, match="out: y overlaps scale"):
        ops.norm_scale_shift(torch.zeros(2, 3, 8), memory[16:24], row, out=x)
    with pytest.raises(ValueError, match=r"out: \w+ shares memory with"):
        ops.residual_norm_scale_shift(
            torch.zeros(2, 3, 8), torch.zeros(2, 3, 8), row, row, row, out=(x, memory[8:56].view(2, 3, 8))
        )
    square = torch.zeros(3, 3, 8)
    with pytest.raises(ValueError, match="out: y overlaps x"):  # begins at x, with other strides
        ops.norm_scale_shift(square, row, row, out=square.transpose(0, 1))
    with pytest.raises(ValueError, match="out: y overlaps scale"):
        ops.norm_scale_shift(torch.zeros(2, 3, 8), x[:1], row, out=x)
    with pytest.raises(ValueError, match="out: y overlaps scale"):  # the same memory, too
        ops.norm_scale_shift(torch.zeros(2, 3, 8), x, row, out=x)
    assert not ran
    assert ops.norm_scale_shift(x, row, row, out=x) is x, "in its place it may lie"
    one = memory[:8].as_strided((1, 1, 8), (5, 3, 1))  # strides of axes of size 1 do not matter
    assert ops.norm_scale_shift(one, row, row, out=memory[:8].view(1, 1, 8)) is not None
    ran.pop()
    assert ops.norm_scale_shift(x, row, row, out=torch.empty(2, 3, 8)).shape == x.shape
    assert len(ran) == 2
    assert ops.norm_scale_shift(x, row, row, out=apart) is apart, "one memory, and apart in it"


def test_a_preference_of_the_program_is_seen_on_the_fast_path(launches: Launches) -> None:
    ran = []
    launches(lambda *given: ran.append(given) or True)  # type: ignore[func-returns-value]
    preference.reset()
    try:
        assert preference.preferred() is None and not preference.active, "nobody prefers anything"
        ops.norm_scale_shift(X, ROW, ROW)
        assert len(ran) == 1
        kernwright.prefer("torch")
        ops.norm_scale_shift(X, ROW, ROW)
        assert len(ran) == 1 and preference.preferred() == "torch"
    finally:
        preference.reset()


def test_an_explanation_accepts_the_same_contracts_as_a_call() -> None:
    with pytest.raises(KernwrightError, match="there is no contract 'foo'"):
        kernwright.explain("norm_scale_shift", X, ROW, ROW, contract="foo")


@pytest.mark.parametrize("out", [torch.empty(2, 3, 16)[..., ::2], torch.empty(2, 3, 8).half(), torch.empty(2, 3, 8)])
def test_an_explanation_refuses_the_same_outputs_as_a_call(out: Tensor) -> None:
    def told(call: Callable[..., Any]) -> str | None:
        try:
            call(X, ROW, ROW, out=out)
        except BadArgument as wrong:
            return str(wrong)
        return None

    assert told(ops.norm_scale_shift) == told(partial(kernwright.explain, ops.norm_scale_shift))
