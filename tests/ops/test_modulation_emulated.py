"""The CUDA kernels' own code, run on a CPU thread by thread: every case bit by bit, without a GPU.

It finds wrong indices, masks, strides and roundings, but no errors that only hardware shows.
"""

from __future__ import annotations

import os
from typing import Any

import empty_cases
import ernie_cases
import folded_cases
import place_cases
import pytest
import torch
from emulation import WATCHED, built
from modulation_cases import BF16, CASES, CUDA_CASES, FP16, FP32, differing, verify

from kernwright import ops
from kernwright.core.registry import shipped_ops
from kernwright.ops.catalog import dispatcher
from kernwright.ops.modulation.family import CUDA, OPS, SOURCES, ModulationOp
from kernwright.runtime.call import BadArgument
from kernwright.runtime.outputs import Promise, rows_like
from kernwright.runtime.target import compiler

pytestmark = [
    pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.filterwarnings("ignore::kernwright.Fallback"),
]
TYPES = {BF16: "kBFloat16", FP16: "kFloat16", FP32: "kFloat32"}
PAIRS = [(BF16, BF16), (FP16, FP16), (FP32, FP32), (BF16, FP32)]
if os.environ.get(WATCHED):  # A sanitizer counts bytes: float16 has as many as bfloat16, and a build takes seconds.
    PAIRS.remove((FP16, FP16))
NAMES = [name for name, case in CUDA_CASES.items() if CUDA[case.op].types(case.tensors()) in PAIRS]
Emulated = dict[tuple[torch.dtype, torch.dtype], Any]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    kinds = {pair: {"KERNWRIGHT_TYPE": TYPES[pair[0]], "KERNWRIGHT_RESULT": TYPES[pair[1]]} for pair in PAIRS}
    return built("modulation_emulation.cc", SOURCES, kinds, tmp_path_factory.mktemp("emulated"))


promises = {name: Promise(own.op) for name, own in OPS.items()}


def runner(op: str, emulated: Emulated) -> Any:
    def call(*tensors: torch.Tensor, out: torch.Tensor | None = None, **scalars: float) -> torch.Tensor:
        out = promises[op](tensors, scalars)[0].fill_(7.0) if out is None else out
        assert getattr(emulated[CUDA[op].types(tensors)], op)(*tensors, *scalars.values(), out)
        return out

    return call


@pytest.mark.parametrize("name", NAMES)
def test_every_case_has_the_chains_bits(name: str, emulated: Emulated) -> None:
    verify(CUDA_CASES[name], runner(CUDA_CASES[name].op, emulated))


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("width", [64, 33])
def test_a_product_may_keep_its_precision(dtype: torch.dtype, width: int, emulated: Emulated) -> None:
    for sizes in ((width,), (1, 6, width)):
        residual, update, gate = (torch.randn(own, dtype=dtype) for own in ((1, 6, width), (1, 6, width), sizes))
        out = torch.full_like(residual, 7.0)
        assert emulated[dtype, dtype].late_residual_gate(residual, update, gate, out)
        assert not differing(out, (update.float() * gate.float() + residual.float()).to(dtype))


def test_the_cases_reach_every_kernel_for_dense_tokens(emulated: Emulated) -> None:
    for case in CUDA_CASES.values():
        runner(case.op, emulated)(*case.tensors(), **case.scalars)
    for dtype, width in ((BF16, 64), (FP16, 64), (BF16, 33), (FP16, 33)):
        test_a_product_may_keep_its_precision(dtype, width, emulated)
    assert {pair: str(module.kernels_left()) for pair, module in emulated.items()} == dict.fromkeys(PAIRS, "")


@pytest.mark.parametrize("name", [name for name, case in ernie_cases.CASES.items() if case.kind == "gate"])
def test_ernies_gate_rounds_once_by_the_same_kernels(name: str, emulated: Emulated) -> None:
    def call(residual: torch.Tensor, update: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        out, types = torch.full_like(residual, 7.0), CUDA["ernie_residual_gate"].types((residual, update))
        assert emulated[types].ernie_residual_gate(residual, update, gate, out)
        return out

    ernie_cases.verify(ernie_cases.CASES[name], call)


@pytest.mark.parametrize("shape", [(1, 3, 64), (2, 5, 33), (1, 1, 33), (2, 1, 512), (3, 70, 3072)])
@pytest.mark.parametrize("op", ["scale_shift", "residual_gate", "broadcast_add"])
def test_a_result_may_replace_an_input(op: str, shape: tuple[int, ...], emulated: Emulated) -> None:
    scalars = shipped_ops()[op].scalar_defaults
    for dtype in (BF16, FP32):
        given = place_cases.tensors_of(shipped_ops()[op], shape, dtype)
        place_cases.hold(shipped_ops()[op], runner(op, emulated), given, **scalars)


def test_between_rows_of_one_channel_there_may_be_gaps(emulated: Emulated) -> None:
    a, b = torch.randn(1, 2, 6, 1), torch.randn(2, 6, 1)
    for steps in ((40, 13, 2, 1), (40, 20, 3, 7), (40, 1, 2, 1)):
        whole = torch.full((48,), 7.0)
        out = whole.as_strided(a.shape, steps)
        assert emulated[FP32, FP32].broadcast_add(a, b, out)
        assert torch.equal(out, a + b) and int((whole == 7).sum()) == 48 - 12
    gaps = torch.randn(2, 6, 4)[..., :1]
    for one, other in ((gaps, b), (b, gaps), (gaps, gaps), (gaps, torch.randn(1)), (torch.randn(2, 1, 1), gaps)):
        out = torch.full((2, 6, 1), 7.0)
        assert emulated[FP32, FP32].broadcast_add(one, other, out)
        assert torch.equal(out, one + other)
    two = torch.randn(1, 2, 6, 2)
    assert not emulated[FP32, FP32].broadcast_add(two, two, torch.empty(1, 2, 6, 4)[..., ::2])


def test_ernies_gate_names_its_own_arguments(emulated: Emulated) -> None:
    own, x = emulated[BF16, BF16].ernie_residual_gate, torch.zeros(2, 6, 64, dtype=BF16)
    for given, named in (
        ((x, x, x[..., :63], x), "gate: has 63 where residual has 64 channels"),
        ((x, x[:, :5], x, x), "update: has 5 where residual has 6 tokens"),
        ((x, x, x, x[:1]), "out: has another shape than residual"),
    ):
        with pytest.raises(ValueError, match=f"^{named}"):
            own(*given)
    assert not own(x, x[:, :1], x, x) and not own(x, x, x[None], x) and not own(x[:1], x[:1], x, x[:1])


@pytest.mark.parametrize("op", folded_cases.EXACT)
def test_empty_calls_are_accepted_without_a_launch(op: str, emulated: Emulated) -> None:
    def call(*tensors: torch.Tensor, **scalars: float) -> torch.Tensor:
        out = rows_like(tensors[0])
        assert getattr(emulated[BF16, BF16], op)(*tensors, *scalars.values(), out)
        return out

    for case in empty_cases.CASES.values():
        if case.op == op:
            empty_cases.verify(case, call)


@pytest.mark.parametrize("name", folded_cases.of(*folded_cases.EXACT))
def test_more_axes_have_the_chains_bits(name: str, emulated: Emulated) -> None:
    case = folded_cases.CASES[name]

    def call(*tensors: torch.Tensor, **scalars: float) -> torch.Tensor:
        out = rows_like(tensors[0]).fill_(7.0)
        assert getattr(emulated[BF16, BF16], case.op)(*tensors, *scalars.values(), out)
        return out

    folded_cases.verify(case, call)


def test_a_wrong_argument_of_more_axes_is_named(emulated: Emulated) -> None:
    own, x, d = emulated[BF16, BF16], torch.zeros(2, 3, 4, 64, dtype=BF16), torch.zeros(64, dtype=BF16)
    for given, named in (
        ((x, x[:, :2], d, 1.0, x), "scale: has 2 where x has 3 in axis 1"),
        ((x, d, x[0, 0, :3], 1.0, x), "shift: has 3 where x has 4 in axis 2"),
        ((x, d, x[None], 1.0, x), "shift: has more dimensions than it can have beside x"),
        ((x, x[..., :63], d, 1.0, x), "scale: has 63 channels, x has 64"),
        ((x, d, d, 1.0, x[:1]), "out: has another shape than x"),
        ((x, d, d, 1.0, x.float()), "out: has another dtype than the result"),
        ((x, d, d, 1.0, x[:1].expand(2, 3, 4, 64)), "out: is expanded, and cannot be written"),
    ):
        with pytest.raises(ValueError, match=f"^{named}"):
            own.scale_shift(*given)
    with pytest.raises(ValueError, match=r"^update: has 2 where residual has 3 in axis 1"):
        own.ernie_residual_gate(x, x[:, :2], d, x)
    assert not own.residual_gate(x, x[:, :1], d, x) and not own.ernie_residual_gate(x, x[:, :1], d, x)
    assert not own.ernie_residual_gate(x[:1], x[:1], x, x[:1])  # the output would be larger than this input


@pytest.mark.parametrize("refused", [(BF16, FP16), (FP32, FP16), (FP16, FP16), (BF16, FP32), (FP32, FP32)])
def test_a_library_takes_no_other_dtypes(refused: tuple[torch.dtype, torch.dtype], emulated: Emulated) -> None:
    x, residual = (torch.zeros(1, 2, 8, dtype=dtype) for dtype in refused)
    assert not emulated[BF16, BF16].residual_gate(residual, x, x, residual)


SHORT = [
    "gate and residual",
    "gate bf16 residual of fp32",
    "frame modulation",
    "hard bf16",
    "row gate",
    "gate gaps",
    "add 4d",
    "add column",
]


@pytest.mark.parametrize("name", [*SHORT, "gate fp32 residual", "gate bf16 residual of fp16", "add promoted"])
def test_the_implementation_picks_its_library_and_lays_out_the_result(
    name: str, emulated: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ModulationOp, "launch", lambda self, device, x, result: getattr(emulated[x, result], self.function)
    )
    case = CASES[name]
    own = next(own for own in OPS[case.op].implementations if own.backend == "cuda").load()
    verify(case, own)
    tensors = case.tensors()
    out = torch.empty_like(own(*tensors, **case.scalars))
    assert own(*tensors, **case.scalars, out=out) is out
    with pytest.raises(BadArgument, match=r"out: \w+ is torch.float64"):
        own(*tensors, **case.scalars, out=out.double())


@pytest.mark.parametrize("name", SHORT)
def test_a_call_like_the_last_goes_straight_to_the_kernel(
    name: str, emulated: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, answers = CASES[name], []
    kernel = getattr(emulated[BF16, BF16], case.op)

    def launch(*arguments: Any) -> bool:
        answers.append(kernel(*arguments))
        return bool(answers[-1])

    monkeypatch.setattr(dispatcher(case.op), "_latest", ("cuda", launch, (None, "close", "exact")))
    own = getattr(ops, case.op)
    verify(case, own)
    is_taken = case.op != "broadcast_add" or case.summands[0][1] == BF16
    assert answers == [is_taken]
    with torch.no_grad():
        own(*(tensor.double() for tensor in case.tensors()), **case.scalars)  # refused, so the dispatcher runs it
    assert answers == [is_taken, False]
    own(*(tensor.requires_grad_() for tensor in case.tensors()), **case.scalars).sum().backward()
    own(*case.tensors(), **case.scalars, backend="torch")
    assert len(answers) == 2  # a call with gradients, or for another backend, never asks
