"""The CUDA kernels' own code, run on a CPU thread by thread: cases by the judge's rule, without a GPU.

Two kinds are built, because a build takes seconds: float32, and bfloat16 with a residual, which includes the code
without one. A GPU runs every case of every kind.
"""

from __future__ import annotations

from typing import Any

import empty_cases
import place_cases
import pytest
import torch
from emulation import TYPES, built
from norm_select_cases import CUDA_CASES, EQUAL_CASES, Case, verify
from place_cases import WIDTHS, tensors_of
from token_cases import BF16, FP16, FP32, arguments, hold_to_oracle

from kernwright.core.registry import shipped_ops
from kernwright.ops.norm_modulation.family import CUDA
from kernwright.runtime.outputs import Promise
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
KINDS = [(BF16, True), (FP32, False)]
NAME = {"KERNWRIGHT_OP": "foreign"}
BUILT = [*KINDS, (FP16, True)]  # float16 only for rows of equal elements
Kinds = dict[tuple[torch.dtype, bool], Any]


def kind(case: Case) -> tuple[torch.dtype, bool]:
    return case.dtype, case.residual_gate is not None


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Kinds:
    kinds = {own: {"KERNWRIGHT_TYPE": TYPES[own[0]], "KERNWRIGHT_RESIDUAL": str(int(own[1])), **NAME} for own in BUILT}
    sources = CUDA["norm_scale_shift_select"].sources
    return built("norm_select_emulation.cc", sources, kinds, tmp_path_factory.mktemp("emulated"))


def runner(case: Case | empty_cases.Case, emulated: Kinds, only_chooses: bool = False) -> Any:
    run = emulated[(BF16, True) if isinstance(case, empty_cases.Case) else kind(case)].run

    promise = Promise(shipped_ops()[case.op])

    def call(*tensors: Any, eps: float = 1e-6, out: Any = None) -> Any:
        outs = out or [own.fill_(float("nan")) for own in promise(tensors, {})]
        assert run(*tensors, eps, *outs, only_chooses) != "none"
        return tuple(outs)

    return call


@pytest.mark.parametrize("name", [name for name, case in CUDA_CASES.items() if kind(case) in KINDS])
def test_every_case_is_close(name: str, emulated: Kinds) -> None:
    verify(CUDA_CASES[name], runner(CUDA_CASES[name], emulated))


def test_empty_calls_are_accepted_without_a_launch(emulated: Kinds) -> None:
    for case in empty_cases.CASES.values():
        if case.op == "residual_norm_scale_shift_select":
            empty_cases.verify(case, runner(case, emulated))


@pytest.mark.parametrize("name", EQUAL_CASES)
def test_rows_of_equal_elements_are_exact(name: str, emulated: Kinds) -> None:
    hold_to_oracle(EQUAL_CASES[name], runner(EQUAL_CASES[name], emulated))


def test_every_compiled_kernel_has_its_case(emulated: Kinds) -> None:
    for case in CUDA_CASES.values():
        if kind(case) in KINDS:
            runner(case, emulated, only_chooses=True)(*arguments(case), **case.scalars)
    for own in KINDS:
        assert str(emulated[own].kernels_left()) == "", own


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("own", KINDS)
def test_results_may_replace_inputs(own: tuple[torch.dtype, bool], width: int, emulated: Kinds) -> None:
    case = next(case for case in CUDA_CASES.values() if kind(case) == own)
    op = shipped_ops()[case.op]
    given = tensors_of(op, (1, 3, width), own[0])
    for more in (given, {**given, "weight": None}):  # kernels for known rows take no weight
        place_cases.hold(op, runner(case, emulated), more)


def zeros(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


SETS = ("scale0", "shift0", "gate0", "scale1", "shift1", "gate1")


def ran(emulated: Kinds, width: int = 64, **changed: Any) -> str:
    """Return the kernel that would run with a residual, for two batch entries of six tokens, with some arguments
    changed."""
    x, row = zeros(2, 6, width), zeros(2, width)
    given = {"x": x, "residual": x, "residual_gate": x} | dict.fromkeys(SETS, row)
    given |= {"index": zeros(2, 6, dtype=torch.int32), "weight": None, "bias": None, "eps": 1e-6}
    given |= {"y": x, "sum": x, "gate": x} | changed
    return str(emulated[BF16, True].run(*given.values(), True))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"x": zeros(6, 64)}, r"x: must be \[B, S, D\]"),
        ({"residual": zeros(2, 5, 64)}, "residual: has another shape than x"),
        ({"residual_gate": zeros(2, 4, 1, 64)}, "residual_gate: 6 tokens do not divide into 4 frames"),
        ({"scale1": zeros(2, 63)}, "scale1: has 63 channels, x has 64"),
        ({"shift0": zeros(3, 64)}, "shift0: has 3 where x has 2 batch entries"),
        ({"gate0": zeros(2, 1, 64)}, r"gate0: must be \[2, 64\], a row per batch entry of x"),
        ({"index": zeros(2, 7, dtype=torch.int32)}, r"index: must be \[2, 6\], a number per token of x"),
        ({"index": zeros(2, 6)}, "index: must be integers or booleans"),
        ({"weight": zeros(63)}, r"weight: must be \[64\]"),
        ({"bias": zeros(64)}, "bias: comes only with a weight"),
        ({"gate": zeros(2, 6, 64, dtype=FP32)}, "out: has another dtype than the result"),
        ({"sum": zeros(2, 1, 64).expand(2, 6, 64)}, "out: is expanded"),
    ],
)
def test_a_wrong_argument_is_named(emulated: Kinds, changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        ran(emulated, **changed)


def test_each_call_has_its_variant(emulated: Kinds) -> None:
    assert ran(emulated, 512) == "small: vector 8, 128 threads"
    assert ran(emulated, 520) == "held: vector 8, 2 a thread, late rows, 64 threads"
    assert ran(emulated, 3072) == "held: vector 8, 2 a thread, early rows, 192 threads"
    assert ran(emulated, 3072, weight=zeros(3072)).startswith("held: vector 8, 2 a thread, any rows")
    assert ran(emulated, 3072, index=zeros(2, 6, dtype=torch.bool)).startswith("held: vector 8, 2 a thread, early rows")
    assert ran(emulated, 3073) == "held: vector 8, 2 a thread, shifted late rows, 224 threads"
    # Has another alignment than the others.
    assert ran(emulated, 3073, gate=zeros(2, 6, 3074)[..., 1:]).startswith("held: vector 1,")
    assert ran(emulated, 65536) == "streamed: vector 8, 512 threads"
    # A gate that index and gates do not spread over x has their shape. The fast path allocates one of x's shape
    # beforehand.
    one = zeros(2, 1, dtype=torch.int32)
    assert ran(emulated, index=one) == ran(emulated, index=one, gate=zeros(1, 1, 64)) == "none"
    assert ran(emulated, index=one, gate=zeros(2, 1, 64)) == "small: vector 8, 128 threads"
    assert ran(emulated, gate0=zeros(2, 1), gate1=zeros(2, 1), gate=zeros(2, 6, 1)) == "none"
    no_tokens = dict.fromkeys(("x", "residual", "residual_gate", "y", "sum"), zeros(2, 0, 64))
    assert ran(emulated, index=one, gate=zeros(2, 1, 64), **no_tokens) == "none"  # no kernel writes the gate
    with pytest.raises(ValueError, match=r"^out: is expanded"):
        ran(emulated, index=one, gate=zeros(1, 1, 64).expand(2, 1, 64))
    assert ran(emulated, gate0=zeros(1, 64), gate1=zeros(2, 1)) == "small: vector 8, 128 threads"
    assert ran(emulated, scale0=zeros(2, 64, dtype=torch.float64)) == "none"
