"""The CUDA kernels for general sums and their norms (all forms except a sum of two in one dtype), run on a CPU thread
by thread: every case by the judge's rule, and its sum with the bits of the eager chain, in every dtype and without a
GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from emulation import TYPES, built
from residual_norm_cases import BF16, FP16, FP32, GENERAL_CASES, WIDE_EQUAL_CASES, Case, verify
from token_cases import arguments, hold_to_oracle
from torch import Tensor

from kernwright.core.registry import shipped_ops
from kernwright.ops.residual_norm.family import SOURCES
from kernwright.runtime.outputs import rows_like
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
Emulated = dict[torch.dtype, Any]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    kinds = {own: {"KERNWRIGHT_TYPE": name, "KERNWRIGHT_IN_PLACE": "1"} for own, name in TYPES.items()}
    return built("general_sum_emulation.cc", SOURCES, kinds, tmp_path_factory.mktemp("emulated"))


def summed(
    emulated: Emulated, x: Tensor, residual: Any = None, weight: Any = None, bias: Any = None, second: Any = None,
    row_scale: Any = None, *, outs: Any = None, norm_type: str = "rms", eps: float = 1e-6, only_chooses: bool = False,
) -> tuple[str, Any]:  # fmt: skip
    """Return the name of the kernel that ran, and both results."""
    dtypes = (x.dtype, x.dtype if residual is None else residual.dtype)
    y, total = outs or (rows_like(x, dtype).fill_(float("nan")) for dtype in dtypes)
    given = (x, residual, weight, bias, second, row_scale, norm_type, eps, y, total)
    return str(emulated[x.dtype].run(*given, only_chooses)), (y, total)


def runner(case: Case, emulated: Emulated, only_chooses: bool = False) -> Any:
    def call(*given: Any, **scalars: Any) -> Any:
        _, wanted = shipped_ops()["add_norm"].reference(*given, **scalars)
        outs = given[:2] if case.in_place else None
        ran, found = summed(emulated, *given, outs=outs, only_chooses=only_chooses, **scalars)
        assert ran != "none"
        assert only_chooses or torch.equal(found[1], wanted), "the sum rounds elsewhere than the chain"
        return found

    return call


@pytest.mark.parametrize("name", GENERAL_CASES)
def test_every_case_is_close_and_its_sum_the_chains(name: str, emulated: Emulated) -> None:
    verify(GENERAL_CASES[name], runner(GENERAL_CASES[name], emulated))


@pytest.mark.parametrize("name", WIDE_EQUAL_CASES)
def test_rows_of_equal_elements_are_exact(name: str, emulated: Emulated) -> None:
    hold_to_oracle(WIDE_EQUAL_CASES[name], runner(WIDE_EQUAL_CASES[name], emulated))


def test_every_compiled_kernel_has_its_case(emulated: Emulated) -> None:
    for case in GENERAL_CASES.values():
        given = [own for own in arguments(case) if own is not None or not case.in_place]
        runner(case, emulated, only_chooses=True)(*given, **case.scalars)
    for dtype, own in emulated.items():
        assert str(own.kernels_left()) == "", dtype


def test_rounding_between_additions_shows_in_the_sum(emulated: Emulated) -> None:
    """1 + 2^-8 rounds to 1 in bfloat16 at each addition, and not in float32."""
    x, half = torch.ones(2, 64, dtype=BF16), torch.full((2, 64), 2.0**-8, dtype=BF16)
    wide = half.float()
    for second, residual, wanted in ((half, half, 1.0), (half, wide, 1 + 2.0**-8), (wide, half, 1 + 2.0**-7)):
        _, (_, total) = summed(emulated, x, residual, second=second)
        assert (total == wanted).all() and total.dtype == residual.dtype
    x, scale = torch.full((2, 64), 1 + 2.0**-7, dtype=BF16), torch.full((2,), 1 + 2.0**-7, dtype=BF16)
    zeros = torch.zeros(2, 64)
    assert (summed(emulated, x, zeros, row_scale=scale)[1][1] == 1 + 2.0**-6).all()
    assert (summed(emulated, x, zeros, row_scale=scale.float())[1][1] == (1 + 2.0**-7) ** 2).all()


def test_the_norm_is_that_of_the_returned_sum(emulated: Emulated) -> None:
    """1024.25 rounds to 1024 in float16, which leaves a row of one number, whose norm is zero."""
    x, residual = torch.arange(64).expand(2, 64) % 2 * 0.25, torch.full((2, 64), 1024.0, dtype=FP16)
    _, (y, total) = summed(emulated, x, residual, norm_type="layer")
    assert total.dtype == FP16 and (total == 1024).all() and not y.any()
    _, (y, total) = summed(emulated, x, residual.float(), norm_type="layer")
    assert (y.abs() - 1).abs().max() < 1e-3


@pytest.mark.parametrize("width", [64, 777, 2560, 9000])
def test_outputs_may_lie_where_inputs_do(width: int, emulated: Emulated) -> None:
    x, second, residual = torch.randn(5, width, dtype=BF16), torch.randn(5, width, dtype=BF16), torch.randn(5, width)
    for norm_type in ("layer", "rms"):
        for own in (x, second):  # the tensor that y replaces
            given = {"x": x.clone(), "second": second.clone(), "residual": residual.clone()}
            _, wanted = summed(emulated, **given, norm_type=norm_type)
            outs = given["x" if own is x else "second"], given["residual"]
            _, found = summed(emulated, **given, outs=outs, norm_type=norm_type)
            assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("shape", [(64,), (3, 2, 5, 64), (2, 3, 1, 2, 40), (0, 64), (2, 0, 3, 8), (4, 0)])
def test_x_has_any_axes(shape: tuple[int, ...], emulated: Emulated) -> None:
    x, second = torch.randn(shape, dtype=BF16), torch.randn(shape, dtype=BF16)
    residual, scale = torch.randn(shape), torch.randn(shape[:-1])
    ran, (y, total) = summed(emulated, x, residual, None, None, second, scale)
    wanted = shipped_ops()["add_norm"].reference(x, residual, None, None, second, scale)
    assert ran == "nothing" if x.numel() == 0 else "\n" not in ran
    assert torch.equal(total, wanted[1])
    torch.testing.assert_close(y, wanted[0], atol=0.03, rtol=0.01)


def test_axes_that_cannot_be_merged_are_separate_launches(emulated: Emulated) -> None:
    whole = torch.randn(3, 5, 3, 4, 66, dtype=BF16)
    x, scale = whole[1:, 1:, 1:, 1:, 2:], torch.randn(2, 4, 2, 3, 2)[..., 0]
    ran, (y, total) = summed(emulated, x, None, row_scale=scale, norm_type="layer")
    wanted = shipped_ops()["add_norm"].reference(x, row_scale=scale, norm_type="layer")
    assert len(ran.splitlines()) > 1 and torch.equal(total, wanted[1])
    torch.testing.assert_close(y, wanted[0], atol=0.03, rtol=0.01)


def test_the_row_that_stands_for_float32_is_one_row(emulated: Emulated) -> None:
    x = torch.randn(2, 5, 4096, dtype=BF16)
    residual = torch.zeros(4096).expand(x.shape)
    ran, (y, total) = summed(emulated, x, residual)
    assert ran.startswith("1 x 10 held") and torch.equal(total, x.float()) and y.isfinite().all()


def zeros(*sizes: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.zeros(sizes, dtype=dtype)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"x": zeros()}, "x: has no dimension to norm over"),
        ({"residual": zeros(4, 63, dtype=FP32)}, "residual: has another shape than x"),
        ({"second": zeros(64)}, "second: has another shape than x"),
        ({"row_scale": zeros(4, 1)}, "row_scale: has another shape than x without its last axis"),
        ({"row_scale": zeros(3)}, "row_scale: has another shape than x without its last axis"),
        ({"row_scale": zeros(4, dtype=torch.int64)}, "row_scale: is no floating-point tensor"),
        ({"residual": zeros(4, 64, dtype=torch.int32)}, "residual: is no floating-point tensor"),
        ({"weight": zeros(63)}, r"weight: must be \[64\], the width of x"),
        ({"bias": zeros(1, 64)}, r"bias: must be \[64\], the width of x"),
        ({"outs": (zeros(4, 64), zeros(4, 64))}, "out: has another dtype than the result"),
        ({"outs": (zeros(4, 64), zeros(64, dtype=FP32).expand(4, 64))}, "out: is expanded"),
        ({"outs": (zeros(4, 65), zeros(4, 64, dtype=FP32))}, "out: has another shape than x"),
        ({"x": zeros(64)}, "residual: has another shape than x"),
    ],
)
def test_a_wrong_argument_is_named(changed: dict[str, Any], named: str, emulated: Emulated) -> None:
    given = {"x": zeros(4, 64), "residual": zeros(4, 64, dtype=FP32)} | changed
    given.setdefault("outs", (zeros(4, 64), zeros(4, 64, dtype=FP32)))
    with pytest.raises(ValueError, match=f"^{named}"):
        summed(emulated, **given)


def test_a_valid_but_unsupported_call_is_refused(emulated: Emulated) -> None:
    x, y = zeros(4, 64), zeros(4, 64)
    for given in (
        {"residual": x.double()}, {"second": zeros(64, 4).t()}, {"row_scale": zeros(4).double()},
        {"weight": zeros(128)[::2]}, {"weight": zeros(64, dtype=torch.float64)},
    ):  # fmt: skip
        assert summed(emulated, x, **given, outs=(y, y))[0] == "none"
    assert summed(emulated, zeros(1, 65537))[0] == "none"
    x = x.view(1, 2, *[1] * 14, 2, 64)
    assert summed(emulated, x)[0] == "none"
    assert emulated[BF16].run(x.float(), *[None] * 5, "rms", 1e-6, x.float(), x.float(), True) == "none"


def test_the_library_answers_no_for_a_tensor_that_is_not_its_own(emulated: Emulated) -> None:
    x = torch.full((4, 64), 7.0, dtype=BF16)
    outs = torch.full_like(x, 3.0), torch.full_like(x, 3.0)
    for residual in (x, None):
        assert emulated[BF16].add_norm(x, residual, *[None] * 4, "rms", 1e-6, *outs) is False
    for residual in (x.clone(), x.float()):
        assert emulated[BF16].fused_add_rms_norm_(x, residual, None, 1e-6) is False
    assert (x == 7).all() and all((out == 3).all() for out in outs)


@pytest.mark.parametrize(
    ("width", "more", "variant"),
    [
        (512, {}, "small: vector 8"),
        (2560, {}, "held: vector 8, 2 a thread, early rows, 160 threads"),
        (4096, {}, "held: vector 8, 2 a thread, early rows, 256 threads"),
        (4544, {"second": BF16}, "held: vector 8, 2 a thread, early rows, 288 threads"),
        (4096, {"second": FP32}, "held: vector 8, 4 a thread, any rows, 128 threads"),
        (4096, {"weight": FP32}, "held: vector 8, 4 a thread, any rows, 128 threads"),
        (16384, {}, "held: vector 8, 4 a thread, late rows, 512 threads"),
        (4097, {}, "held: vector 1, 8 a thread, any rows, 544 threads"),
        (65536, {}, "streamed: vector 8"),
        (65535, {}, "streamed: vector 1"),
    ],
)
def test_each_call_has_its_variant(width: int, more: dict[str, torch.dtype], variant: str, emulated: Emulated) -> None:
    x, row = zeros(1, 4, width), zeros(width)
    given = {name: (row if name == "weight" else x).to(dtype) for name, dtype in ({"weight": BF16} | more).items()}
    for residual in (FP32, None):
        own = None if residual is None else x.to(residual)
        ran, _ = summed(emulated, x, own, **given, only_chooses=True)
        assert ran.startswith(f"1 x 4 {variant}"), residual


def test_layer_norms_of_a_float32_sum_have_its_vectors(emulated: Emulated) -> None:
    x, residual = zeros(4, 4096), zeros(4, 4096, dtype=FP32)
    ran, _ = summed(emulated, x, residual, norm_type="layer", only_chooses=True)
    assert ran == "1 x 4 held: vector 4, 4 a thread, late rows, 256 threads"
    assert summed(emulated, x, norm_type="layer", only_chooses=True)[0].startswith("1 x 4 held: vector 8")


def test_rows_that_start_anywhere_are_read_by_single_elements(emulated: Emulated) -> None:
    x, residual = zeros(4, 64), zeros(4, 66, dtype=FP32)
    assert "vector 8," in summed(emulated, x, residual[:, 2:].contiguous(), only_chooses=True)[0]
    assert "vector 1," in summed(emulated, x, residual[:, 1:65], only_chooses=True)[0]
    assert "vector 8," in summed(emulated, x, zeros(4, 68, dtype=FP32)[:, 4:], only_chooses=True)[0]
    assert "vector 1," in summed(emulated, x, second=zeros(4, 68)[:, 4:], only_chooses=True)[0]
    assert "vector 4," in summed(emulated, zeros(4, 64, dtype=FP32), zeros(4, 68)[:, 4:], only_chooses=True)[0]
