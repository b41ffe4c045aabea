"""The exact CUDA kernels' own code, run on a CPU thread by thread: bit by bit against a twin that norms as torch does
on a GPU. Each op runs in one dtype here, and in all of them on a GPU."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import folded_cases
import norm_exact_cases
import place_cases
import pytest
import torch
from emulation import built
from norm_modulation_cases import BF16, FP32, Case
from place_cases import listed, tensors_of
from token_cases import arguments

from kernwright.core.registry import shipped_ops
from kernwright.ops._shared.implementations import CudaOp
from kernwright.ops.norm_modulation import exactness
from kernwright.ops.norm_modulation.family import EXACT
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
# Float32 hides no bit of a norm. With bfloat16, two numbers are computed at once.
BUILT = {"kFloat32": (FP32, False), "kBFloat16": (BF16, True)}
CASES = {
    name: case for name, case in norm_exact_cases.CUDA_CASES.items() if (case.dtype, case.residual) in BUILT.values()
}
CASES |= {
    f"{name} in float32": replace(case, dtype=FP32)
    for name, case in norm_exact_cases.CUDA_CASES.items()
    if case.dtype == BF16 and not case.residual and "torch" not in name
}
FOLDED = {
    f"{name} exactly": replace(case, width=24, dtype=FP32 if case.op == "norm_scale_shift" else BF16)
    for name, case in folded_cases.of("norm_scale_shift", "residual_norm_scale_shift").items()
    if not case.affine
}
Modules = dict[tuple[torch.dtype, bool], Any]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    kinds = {
        kind: {"KERNWRIGHT_TYPE": name, "KERNWRIGHT_RESIDUAL": str(int(kind[1])), "KERNWRIGHT_OP": "foreign"}
        for name, kind in BUILT.items()
    }
    return built(
        "norm_exact_emulation.cc", EXACT["norm_scale_shift"].sources, kinds, tmp_path_factory.mktemp("emulated")
    )


def runner(case: Case | folded_cases.Case, module: Any, only_chooses: bool = False) -> Any:
    run = module.run

    def call(*tensors: Any, norm_type: str, eps: float, out: Any = None) -> Any:
        outs = listed(out) or [torch.full_like(tensors[0], float("nan")) for _ in range(1 + case.residual)]
        assert run(*tensors, norm_type, eps, *outs, only_chooses)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return call


@pytest.mark.parametrize("name", CASES)
def test_it_has_the_bits_of_torchs_order(name: str, emulated: Modules) -> None:
    case = CASES[name]
    norm_exact_cases.hold_to_twin(case, runner(case, emulated[case.dtype, case.residual]))


@pytest.mark.parametrize("width", [64, 3072, 8192, 9000])
@pytest.mark.parametrize("kind", BUILT.values())
def test_results_lie_in_an_inputs_place(kind: tuple[torch.dtype, bool], width: int, emulated: Modules) -> None:
    case = next(case for case in CASES.values() if (case.dtype, case.residual) == kind)
    op = shipped_ops()[case.op]
    given = {**tensors_of(op, (1, 3, width), kind[0]), "weight": None}
    place_cases.hold(op, runner(case, emulated[kind]), given, norm_type="layer", eps=1e-6)


@pytest.mark.parametrize("name", FOLDED)
def test_more_axes_have_the_bits_of_torchs_order(name: str, emulated: Modules) -> None:
    case = FOLDED[name]
    norm_exact_cases.hold_to_twin(case, runner(case, emulated[case.dtype, case.residual]))


def test_with_more_axes_all_of_x_counts_as_copied_by_torch(emulated: Modules) -> None:
    """Tokens with gaps are copied before the norm, wherever they start. Views of parts of them may be dense."""
    run, row = emulated[FP32, False].run, torch.zeros(2, 1, 1, 64)
    whole, rows = torch.randn(2 * 3 * 5 * 64 + 1), (row, row, None, None, "layer", 1e-6)
    for x, takes in (
        (whole[:-1].view(2, 3, 5, 64), True),
        (whole[1:].view(2, 3, 5, 64), False),
        (whole[1:].view(2, 3, 5, 64)[:, :2], True),
    ):
        assert run(x, *rows, torch.empty_like(x), False) == takes


def test_every_compiled_shape_has_its_case(emulated: Modules) -> None:
    modules = {residual: module for (_, residual), module in emulated.items()}  # each module chooses for all dtypes
    for case in norm_exact_cases.CUDA_CASES.values():
        runner(case, modules[case.residual], only_chooses=True)(*arguments(case), **case.scalars)
    assert [int(module.shapes_left()) for module in modules.values()] == [0, 0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exact torch.bfloat16 held 3072", "6 groups a thread, own rows early"),
        ("exact torch.bfloat16 held 5120", "10 groups a thread, own rows late"),
        ("exact torch.bfloat16 tokens 5120", "10 groups a thread, own rows early"),
        ("exact torch.bfloat16 float rows 3072", "6 groups a thread, float rows late"),
        ("exact torch.bfloat16 float tokens 3072", "6 groups a thread, float rows early"),
        ("exact torch.bfloat16 held 3076", "up to 8 groups a thread, own rows early"),
        ("exact width 8196", "read twice by 4"),
        ("exact gaps", "read twice by 1"),
        ("exact torch.bfloat16 mixed", "read twice by 4"),
    ],
)
def test_each_call_has_its_kernel(name: str, words: str, emulated: Modules) -> None:
    case = norm_exact_cases.CUDA_CASES[name]
    module = emulated[(BF16, True) if case.residual else (FP32, False)]
    runner(case, module, only_chooses=True)(*arguments(case), **case.scalars)
    assert str(module.variant()) == words


def test_calls_that_torch_itself_norms_in_another_order_are_refused(emulated: Modules) -> None:
    def takes(x: torch.Tensor, weight: torch.Tensor | None = None, norm_type: str = "layer", **more: Any) -> bool:
        d, y = torch.zeros(x.shape[-1], dtype=BF16), torch.empty(x.shape, dtype=BF16)
        if (residual := more.get("residual")) is not None:
            rows = (d, d, None, weight, None, norm_type, 1e-6)
            return bool(emulated[BF16, True].run(x, residual, *rows, y, torch.empty_like(y), True))
        return bool(emulated[FP32, False].run(x, d, d, weight, None, norm_type, 1e-6, y, True))

    x, whole = torch.zeros(1, 4, 64, dtype=BF16), torch.zeros(4 * 64 + 2, dtype=BF16)
    off = whole[2:].view(1, 4, 64)  # starts at the third element, where torch does not use loads of four
    assert takes(x) and not takes(off)
    assert takes(whole[1:193].view(1, 3, 64)[..., :60])  # torch copies rows with gaps
    assert takes(off, residual=x)  # a sum is a copy too
    assert not takes(x[..., :62]) and not takes(x, torch.zeros(64, dtype=BF16)) and not takes(x, norm_type="rms")


def test_a_device_is_checked_for_torchs_order(emulated: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    """This processor replaces a GPU. With torch's order spelled out it passes the check, and with its own order it
    fails."""

    def launch(x: Any, scale: Any, shift: Any, weight: Any, bias: Any, norm_type: str, eps: float, y: Any) -> bool:
        run = emulated[FP32, False].run
        return bool(run(x, scale, shift, weight, bias, norm_type, eps, y, False))

    monkeypatch.setattr(CudaOp, "launch", lambda *_: launch)
    monkeypatch.setattr(exactness, "FEWEST_ROWS", 8)
    monkeypatch.setattr(exactness, "FEWEST_ELEMENTS", 0)
    monkeypatch.setattr(exactness, "_shown_widths", widths := defaultdict(set))
    asked = ("cuda", "norm_scale_shift", torch.device("cpu"), FP32)
    assert not exactness.shown.__wrapped__(*asked, 516) and not widths
    monkeypatch.setattr(torch.nn.functional, "layer_norm", norm_exact_cases.normed_in_torchs_order)
    assert exactness.shown.__wrapped__(*asked, 516) and widths == {("norm_scale_shift", FP32): {516}}
