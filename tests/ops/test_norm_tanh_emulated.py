"""The CUDA kernels' own code, run on a CPU thread by thread: cases by the judge's rule, without a GPU.

One dtype with both norms is built, because a build takes seconds: the op with one norm is a part of the op with two,
and the other dtypes' kernels differ only in a conversion. A GPU runs every case of every kind.
"""

from __future__ import annotations

from typing import Any

import empty_cases
import folded_cases
import place_cases
import pytest
import torch
from emulation import TYPES, built
from norm_tanh_cases import CUDA_CASES, EQUAL_CASES, Case, verify
from place_cases import WIDTHS, listed, tensors_of
from token_cases import BF16, FP16, arguments, hold_to_oracle

from kernwright.core.registry import shipped_ops
from kernwright.ops.norm_tanh.family import SOURCES
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
KINDS = [(BF16, True)]
BUILT = [*KINDS, (FP16, True)]  # float16 only for rows of equal elements
FOLDED = folded_cases.of("norm_tanh_mul_add_norm_scale")
Kinds = dict[tuple[torch.dtype, bool], Any]


def kind(case: Case) -> tuple[torch.dtype, bool]:
    return case.dtype, case.scale2 is not None


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Kinds:
    kinds = {own: {"KERNWRIGHT_TYPE": TYPES[own[0]], "KERNWRIGHT_TWICE": str(int(own[1]))} for own in BUILT}
    return built("norm_tanh_emulation.cc", SOURCES, kinds, tmp_path_factory.mktemp("emulated"))


def runner(case: Case | folded_cases.Case | empty_cases.Case, emulated: Kinds, only_chooses: bool = False) -> Any:
    twice = case.op.endswith("norm_scale")
    run = emulated[BF16 if isinstance(case, empty_cases.Case) else case.dtype, twice].run

    def call(*tensors: Any, norm_type: str = "rms", eps: float = 1e-5, out: Any = None) -> Any:
        outs = listed(out) or [torch.full_like(tensors[0], float("nan")) for _ in range(1 + twice)]
        assert run(*tensors, norm_type, eps, *outs, only_chooses) != "none"
        return tuple(outs) if twice else outs[0]

    return call


@pytest.mark.parametrize("name", [name for name, case in CUDA_CASES.items() if kind(case) in KINDS])
def test_every_case_is_close(name: str, emulated: Kinds) -> None:
    verify(CUDA_CASES[name], runner(CUDA_CASES[name], emulated))


@pytest.mark.parametrize("name", FOLDED)
def test_more_axes_are_close(name: str, emulated: Kinds) -> None:
    folded_cases.verify(FOLDED[name], runner(FOLDED[name], emulated))


def test_empty_calls_are_accepted_without_a_launch(emulated: Kinds) -> None:
    for case in empty_cases.CASES.values():
        if case.op == "norm_tanh_mul_add_norm_scale":
            empty_cases.verify(case, runner(case, emulated))


@pytest.mark.parametrize("name", EQUAL_CASES)
def test_rows_of_equal_elements_are_exact(name: str, emulated: Kinds) -> None:
    hold_to_oracle(EQUAL_CASES[name], runner(EQUAL_CASES[name], emulated))


@pytest.mark.parametrize(
    ("name", "keeps"),
    [
        *((name, True) for name in CUDA_CASES if name.startswith("kept")),
        ("too few tokens to keep", False),
        ("too many batches to keep", False),
        ("too narrow to keep", False),
        ("too wide to keep", False),
        ("a scale for each token", False),
    ],
)
def test_gains_are_kept_for_many_tokens_with_the_same_rows(name: str, keeps: bool, emulated: Kinds) -> None:
    case = CUDA_CASES[name]
    tensors = arguments(case)
    outs = [torch.empty_like(tensors[0]) for _ in range(2)]
    assert emulated[kind(case)].keeps_gains(*tensors, case.norm_type, 1e-5, *outs) is keeps


def test_every_compiled_kernel_has_its_case(emulated: Kinds) -> None:
    for case in CUDA_CASES.values():
        if kind(case) in KINDS:
            runner(case, emulated, only_chooses=True)(*arguments(case), **case.scalars)
    for own in KINDS:
        assert str(emulated[own].kernels_left()) == "", own


@pytest.mark.parametrize("norm_type", ["layer", "rms"])
@pytest.mark.parametrize("width", WIDTHS)
def test_results_may_replace_inputs(width: int, norm_type: str, emulated: Kinds) -> None:
    op = shipped_ops()["norm_tanh_mul_add_norm_scale"]
    call = runner(next(case for case in CUDA_CASES.values() if kind(case) == (BF16, True)), emulated)
    place_cases.hold(op, call, tensors_of(op, (1, 3, width), BF16), norm_type=norm_type)


def zeros(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


def ran(emulated: Kinds, width: int = 96, **changed: Any) -> str:
    """Return the kernel that would run for two batch entries of six tokens, with some arguments changed."""
    given = {"x": zeros(2, 6, width), "scale": zeros(2, 1, width), "shift": zeros(2, 6, width), "scale2": zeros(width)}
    given |= dict.fromkeys(("weight", "bias", "weight2", "bias2")) | {"norm_type": "rms", "eps": 1e-5}
    given |= {"y": given["x"], "y2": given["x"]} | changed
    return str(emulated[BF16, True].run(*given.values(), True))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"scale": zeros(95)}, "scale: has 95 channels, x has 96"),
        ({"shift": zeros(3, 1, 96)}, "shift: has 3 where x has 2 batch entries"),
        ({"scale2": zeros(2, 4, 1, 96)}, "scale2: 6 tokens do not divide into 4 frames"),
        ({"weight2": zeros(95)}, r"weight2: must be \[96\]"),
        ({"bias": zeros(96)}, "bias: an RMS norm has no bias"),
        ({"bias2": zeros(96), "norm_type": "layer"}, "bias2: comes only with a weight2"),
        ({"norm_type": "batch"}, "norm_type: is 'layer' or 'rms', not 'batch'"),
        ({"y2": zeros(2, 6, 95)}, "out: has another shape than x"),
        ({"x": zeros(1, 2, 6, 96), "shift": zeros(3, 1, 96)}, "shift: has 3 where x has 2 in axis 1"),
        ({"shift": zeros(96, dtype=torch.int64)}, "shift: is no floating-point tensor"),
    ],
)
def test_a_wrong_argument_is_named(emulated: Kinds, changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        ran(emulated, **changed)


def test_each_call_has_its_variant(emulated: Kinds) -> None:
    assert ran(emulated, 512) == "small: vector 8, 128 threads"
    assert ran(emulated, 520) == "held: vector 8, 2 a thread, early rows, 64 threads"
    assert ran(emulated, 3840) == "held: vector 8, 3 a thread, early rows, 160 threads"
    assert ran(emulated, 3840, scale2=zeros(3840, dtype=torch.float32)).startswith(
        "held: vector 8, 4 a thread, any rows"
    )
    assert ran(emulated, 3841) == "held: vector 8, 2 a thread, shifted late rows, 256 threads"
    assert ran(emulated, 8187) == "held: vector 1, 12 a thread, late rows, 704 threads"  # spans 1025 vectors
    assert ran(emulated, 65536) == "streamed: vector 8, 512 threads"
    assert ran(emulated, 520, x=zeros(2, 6, 521)[..., 1:]).startswith("held: vector 1,")  # has another alignment than y
    assert ran(emulated, x=zeros(2, 6, 96, dtype=torch.float64)) == "none"
    assert ran(emulated, scale=zeros(2, 1, 192)[..., ::2]) == "none"


def test_elements_next_to_a_shifted_token_are_neither_counted_nor_written(emulated: Kinds) -> None:
    torch.manual_seed(0)
    width, ahead = 777, 3
    around = [torch.full((1, 9, width + 6), float("nan"), dtype=BF16) for _ in range(3)]
    x, y, y2 = (own[..., ahead : ahead + width] for own in around)
    rows = [torch.full((width + 6,), float("nan"), dtype=BF16)[start : start + width] for start in (0, 1, 5)]
    for own in (x, *rows):
        own.copy_(torch.randn(own.shape) + 2)
    scale, shift, scale2 = rows
    arguments = (x, scale, shift, scale2, None, None, None, None, "layer", 1e-5, y, y2, False)
    assert "shifted" in str(emulated[BF16, True].run(*arguments))
    given = {"x": x, "scale": scale, "shift": shift, "scale2": scale2}
    given |= dict.fromkeys(("weight", "bias", "weight2", "bias2"))
    oracle = shipped_ops()["norm_tanh_mul_add_norm_scale"].oracle(given, {"norm_type": "layer", "eps": 1e-5})
    for own, whole, wanted in zip((y, y2), around[1:], oracle, strict=True):
        torch.testing.assert_close(own.double(), wanted, atol=0.05, rtol=0.05)
        assert int(whole.isnan().sum()) == 9 * 6
