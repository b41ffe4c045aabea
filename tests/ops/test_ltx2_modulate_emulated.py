"""The CUDA kernels' own code, run on a CPU thread by thread: every case by the judge's rule, and bit by bit against a
twin that sums as torch does on a GPU. Tokens are bfloat16 here, whatever the case says: a GPU runs the other dtypes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import empty_cases
import folded_cases
import ltx2_exact_cases
import place_cases
import pytest
import torch
from emulation import built
from ltx2_modulate_cases import BF16, CUDA_CASES, FP32, verify
from place_cases import listed, tensors_of
from token_cases import arguments

from kernwright import ops
from kernwright.core.registry import shipped_ops
from kernwright.ops.catalog import dispatcher
from kernwright.ops.ltx2_modulate.family import OPS, SOURCES
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


FOLDED = folded_cases.of(*OPS)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    kinds = {BF16: {"KERNWRIGHT_TYPE": "kBFloat16"}}
    return built("ltx2_modulate_emulation.cc", SOURCES, kinds, tmp_path_factory.mktemp("emulated"))[BF16]


def runner(op: str, emulated: Any) -> Any:
    def call(*tensors: torch.Tensor, eps: float = 1e-6, out: Any = None) -> Any:
        count = 1 if op.startswith("rms") else 2
        outs = listed(out) or [torch.full_like(tensors[0], float("nan"), dtype=FP32) for _ in range(count)]
        assert getattr(emulated, op)(*tensors, eps, *outs)
        return outs[0] if count == 1 else tuple(outs)

    return call


@pytest.fixture(scope="module")
def of_float32(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the call with float32 tokens, because results are float32 and need a place of their dtype."""
    kinds = {FP32: {"KERNWRIGHT_TYPE": "kFloat32"}}
    return built("ltx2_modulate_emulation.cc", SOURCES, kinds, tmp_path_factory.mktemp("emulated"))[FP32]


@pytest.mark.parametrize("width", [64, 97, 4096, 8192, 9000, 9001])
@pytest.mark.parametrize("op", OPS)
def test_results_lie_in_an_inputs_place(op: str, width: int, of_float32: Any) -> None:
    given = tensors_of(shipped_ops()[op], (1, 3, width), FP32)
    place_cases.hold(shipped_ops()[op], runner(op, of_float32), given)


HELD = ("held 4096", "dual held 8188", "table held 4096", "rms table held 4096")
# Torch's order adds 512 squares of such a token one after the other. On a GPU the eager chain is no closer, on a CPU it
# is.
WIDEST = ("table width 65536", "rms table width 65536")


@pytest.mark.parametrize("name", [name for name in CUDA_CASES if name not in WIDEST])
def test_every_case_is_close(name: str, emulated: Any) -> None:
    case = replace(CUDA_CASES[name], dtype=BF16)
    verify(case, runner(case.op, emulated))


@pytest.mark.parametrize("name", FOLDED)
def test_more_axes_are_close(name: str, emulated: Any) -> None:
    folded_cases.verify(FOLDED[name], runner(FOLDED[name].op, emulated))


@pytest.mark.parametrize("op", OPS)
def test_empty_calls_are_accepted_without_a_launch(op: str, emulated: Any) -> None:
    for case in empty_cases.CASES.values():
        if case.op == op:
            empty_cases.verify(case, runner(op, emulated))


@pytest.mark.parametrize("name", [*ltx2_exact_cases.CASES, *HELD, *WIDEST])
def test_it_has_the_bits_of_torchs_order(name: str, emulated: Any) -> None:
    case = replace(ltx2_exact_cases.CASES.get(name) or CUDA_CASES[name], dtype=BF16)
    ltx2_exact_cases.hold_to_twin(case, runner(case.op, emulated))


@pytest.mark.parametrize("width", [33_001, 65_535])
def test_a_wide_token_without_torchs_order_loses_nothing_to_its_length(width: int, emulated: Any) -> None:
    x = (torch.randn(8, width, generator=torch.Generator().manual_seed(width)) * 200 + 50).to(BF16)
    y = runner("rms_modulate", emulated)(x, torch.zeros(1), torch.zeros(1), eps=1e-6)
    exact = x.double() * x.double().square().mean(-1, keepdim=True).add(1e-6).rsqrt()
    torch.testing.assert_close(y.double(), exact, atol=0, rtol=2.5e-7)  # a few float32 roundings


@pytest.mark.parametrize("width", [64, 129])
def test_an_infinity_makes_one_element_nan_and_a_nan_its_whole_token(width: int, emulated: Any) -> None:
    """By the chain's formula. Torch's general CUDA kernel makes the whole token NaN."""
    x = torch.ones(1, 3, width, dtype=BF16)
    x[0, 0, 5], x[0, 1, 6] = torch.inf, torch.nan
    given = (x, torch.zeros(1, 1, 2 * width), torch.zeros(2, width))
    y = runner("rms_modulate_from_table", emulated)(*given)
    assert torch.equal(
        y.isnan(),
        shipped_ops()["rms_modulate_from_table"]
        .call(dict(zip(("x", "temb_scale_shift", "scale_shift_table"), given, strict=True)), {"eps": 1e-6})[0]
        .isnan(),
    )
    assert y.isnan().sum(-1).tolist() == [[1, width, 0]]


def test_each_kernel_has_its_case(emulated: Any) -> None:
    seen: dict[str, set[str]] = {}
    for case in CUDA_CASES.values():
        if case.tokens * case.batch:
            own = replace(case, dtype=BF16)
            runner(case.op, emulated)(*arguments(own), **own.scalars)
            seen.setdefault(case.op, set()).add(str(emulated.variant()))
    ahead = {"rms_modulate": 16, "dual_modulate": 8, "rms_modulate_from_table": 4, "dual_modulate_from_table": 2}
    assert seen.keys() == ahead.keys()
    for op, words in seen.items():
        held = {f"{n} groups a thread, rows of {4 if n == 4 else min(n, ahead[op])} ahead" for n in (4, 8, 16)}
        assert words == held | {"read twice by 4", "read twice by 1"}, op


X, D, TABLE = torch.zeros(2, 6, 64, dtype=BF16), torch.zeros(64), torch.zeros(4, 64)
Y, TEMB = X.float(), torch.zeros(2, 1, 128)


@pytest.mark.parametrize(
    ("op", "given", "named"),
    [
        ("rms_modulate", (X, D[:63], D, 1e-6, Y), "scale: has 63 where x has 64 channels"),
        ("rms_modulate", (X, D, X[:, :5], 1e-6, Y), "shift: has 5 where x has 6 tokens"),
        ("rms_modulate", (X, D, X.long(), 1e-6, Y), "shift: is no floating-point tensor"),
        ("rms_modulate", (X, D, D, 1e-6, X), "out: has another dtype than the result"),
        ("dual_modulate", (X, D, D, D, X[:, :4], 1e-6, Y, Y), "shift1: has 4 where x has 6 tokens"),
        ("dual_modulate", (X, D, D, D, D, 1e-6, Y, Y[:1]), "out: has another shape than x"),
        ("dual_modulate_from_table", (X, Y[:, :1], TABLE, 1e-6, Y, Y), r"temb_scale_shift: must be \[B, 1, 256\]"),
        ("dual_modulate_from_table", (X, Y, TABLE[:3], 1e-6, Y, Y), r"scale_shift_table: must be \[4, 64\]"),
        (
            "rms_modulate_from_table",
            (X, TEMB[:, :, 1:], TABLE[:2], 1e-6, Y),
            r"temb_scale_shift: must be \[B, 1, 128\]",
        ),
        ("rms_modulate_from_table", (X, TEMB, TABLE, 1e-6, Y), r"scale_shift_table: must be \[2, 64\]"),
        ("rms_modulate_from_table", (X, TEMB, TABLE[:2], 1e-6, X), "out: has another dtype than the result"),
        (
            "dual_modulate_from_table",
            (X, torch.zeros(3, 1, 256), TABLE, 1e-6, Y, Y),
            "temb_scale_shift: has 3 where x has 2 batch",
        ),
    ],
)
def test_a_wrong_argument_is_named(op: str, given: tuple[Any, ...], named: str, emulated: Any) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        getattr(emulated, op)(*given)


def test_a_valid_but_unsupported_call_is_refused(emulated: Any) -> None:
    refused = [(X.float(), D, D), (X[:1], X, D), (X[0], X, D), (X, X.mT.contiguous().mT, D), (X, D.double(), D)]
    for x, scale, shift in refused:
        assert not emulated.rms_modulate(x, scale, shift, 1e-6, torch.zeros_like(x, dtype=torch.float32))
    assert not emulated.dual_modulate_from_table(X[0], torch.zeros(1, 6, 256), TABLE, 1e-6, Y[0], Y[0])
    for x, temb in ((X[0], TEMB[:1]), (X[:1], TEMB), (X.float(), TEMB), (X, torch.zeros(2, 1, 256)[..., ::2])):
        assert not emulated.rms_modulate_from_table(x, temb, TABLE[:2], 1e-6, torch.zeros_like(x, dtype=torch.float32))


@pytest.mark.filterwarnings("ignore::kernwright.Fallback")
@pytest.mark.parametrize(
    "name", ["row modulation", "dual chunk", "table torch.bfloat16 torch.float32", "rms table gaps odd"]
)
def test_a_call_like_the_last_goes_straight_to_the_kernel(
    name: str, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, answers = replace(CUDA_CASES[name], dtype=BF16), []

    def launch(*given: Any) -> bool:
        answers.append(getattr(emulated, case.op)(*given))
        return bool(answers[-1])

    monkeypatch.setattr(dispatcher(case.op), "_latest", ("cuda", launch, (None, "close")))
    own = getattr(ops, case.op)
    verify(case, own)
    assert answers == [True]
    given = arguments(case)
    assert given[0] is not None
    own(given[0].double(), *given[1:], **case.scalars)  # refused, so the dispatcher runs it
    own(*given, **case.scalars, contract="exact")
    own(*given, **case.scalars, backend="torch")
    assert answers == [True, False]  # a call for another backend never asks
