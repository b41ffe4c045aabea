"""The Triton kernels of the ops over tokens: every case in the interpreter by the judge's rule, and compiled for an
H200 without one."""

from __future__ import annotations

import importlib
import re
from typing import Any

import norm_exact_cases
import pytest
import torch
from compiled_kernels import narrow_accesses, ptx_of
from interpreted_cases import interpreted_families
from token_cases import FAMILIES, arguments, every_case

import kernwright
from kernwright import ops
from kernwright.core.registry import shipped_ops

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, str | None]]:
    return interpreted_families((*FAMILIES, "norm_exact"))


@pytest.mark.parametrize(("family", "name"), every_case())
def test_every_case_is_close(family: str, name: str, outcomes: dict[str, dict[str, str | None]]) -> None:
    assert outcomes[family][name] is None


@pytest.mark.parametrize("name", norm_exact_cases.CASES)
def test_an_exact_norm_has_the_bits_of_torchs_order(name: str, outcomes: dict[str, dict[str, str | None]]) -> None:
    assert outcomes["norm_exact"][name] is None


SHARED = {"norm_modulate": "norm_modulation", "modulate": "modulation"}  # kernels of a family that other families run
# A kernel's name, and a case for each path through it: tokens held whole, and in pieces.
COMPILED = [
    ("norm_select", "norm_modulate", "residual width 3072"),
    ("norm_select", "norm_modulate", "residual width 16400"),
    ("norm_tanh", "gated_norm", "twice width 3840"),
    ("norm_tanh", "gated_norm", "twice width 65536"),
    ("ltx2_modulate", "rms_modulated", "dual width 2048"),
    ("ltx2_modulate", "rms_modulated", "rms table width 2048"),
    ("ltx2_modulate", "rms_modulated", "table width 65536"),
    ("ltx2_exact", "rms_modulated_exactly", "width 2048"),
    ("ernie", "norm_modulate", "residual width 4096"),
    ("ernie", "modulate", "gate width 4096"),
    ("residual_norm", "add_norm_rows", "in place width 4096"),
    ("residual_norm", "add_norm_rows", "width 65536"),
]


@pytest.mark.parametrize(("family", "kernel", "name"), COMPILED)
def test_it_compiles_for_an_h200_without_one(family: str, kernel: str, name: str) -> None:
    cases: Any = importlib.import_module(f"{family}_cases")
    own = importlib.import_module(f"kernwright.ops.{getattr(cases, 'FAMILY', family)}.triton")
    where = importlib.import_module(f"kernwright.ops.{SHARED.get(kernel, own.__name__.split('.')[-2])}.triton")
    case = cases.CASES[name]
    scalars = {**case.scalars, "exact": True} if kernel.endswith("exactly") else case.scalars
    ptx = ptx_of(where, kernel, lambda: getattr(own, case.op)(*arguments(case), **scalars))
    narrow = narrow_accesses(ptx, "ld.global")
    if family == "ltx2_exact":  # torch's order has four channels per thread: 8 bytes
        narrow = [line for line in narrow if ".v2.b32" not in line]
    if family == "norm_select":  # its index is one number per token
        narrow = [line for line in narrow if ".b32" not in line or ".v2" in line]
    assert not narrow and not narrow_accesses(ptx, "st.global")  # 16 bytes at a time
    if kernel in ("modulate", "rms_modulated_exactly"):  # exact kernels fuse a product only where their source says so
        fused = re.findall(r"\bfma\.\S*", ptx)
        assert fused == ["fma.rn.f32"] * (4 if kernel == "rms_modulated_exactly" else 0)
        assert not re.search(r"\b(mul|add)\.(ftz\.)?f32", ptx)  # without .rn the assembler might fuse them


def test_an_exact_norm_compiles_for_an_h200_and_fuses_what_torch_fuses() -> None:
    from kernwright.ops.norm_modulation import exact_triton

    case = norm_exact_cases.CUDA_CASES["residual exact torch.bfloat16 held 3072"]
    call = getattr(exact_triton, case.op)
    ptx = ptx_of(exact_triton, "norm_modulated_exactly", lambda: call(*arguments(case), **case.scalars))
    assert set(re.findall(r"\bfma\.\S*", ptx)) == {"fma.rn.f32"}  # only the fused products in the kernel's source
    assert not re.search(r"\b(mul|add|sub)\.(ftz\.)?f32", ptx)  # without .rn the assembler might fuse them
    assert not narrow_accesses(ptx, "st.global")


X, ROW, INDEX = torch.zeros(2, 4, 32), torch.zeros(2, 32), torch.zeros(2, 4, dtype=torch.int32)
REFUSED: list[tuple[str, list[torch.Tensor], str]] = [
    ("norm_scale_shift_select", [X, *[ROW[:, :1]] * 6, INDEX], "the chosen gate is [2, 4, 1], x is [2, 4, 32]"),
    ("norm_scale_shift_select", [X[:, :0], *[ROW] * 6, INDEX[:, :1]], "and x, [2, 0, 32], has no tokens"),
    ("norm_scale_shift_select", [X, *[ROW] * 6, INDEX.to(torch.uint16)], "index is torch.uint16"),
    ("norm_scale_shift_select", [X, *[ROW.double()] * 6, INDEX], "scale0 is torch.float64"),
    ("residual_norm_scale_shift_select", [X, X.double(), ROW, *[ROW] * 6, INDEX], "residual is torch.float64"),
    ("norm_tanh_mul_add", [torch.zeros(1, 1, 65537), ROW[0, 0], ROW[0, 0]], "x is 65537 wide, over 65536"),
    ("norm_tanh_mul_add", [X, X.mT.contiguous().mT, X], "scale has a last axis with gaps"),
    ("rms_modulate", [X[:1], X[:, :1], X[0]], "y is [2, 4, 32], x is [1, 4, 32]"),
    ("rms_modulate", [X[0], X[:1], X[0]], "y is [1, 4, 32], x is [4, 32]"),
    ("dual_modulate_from_table", [X, X[:, :1].repeat(1, 1, 4).double(), X[0]], "temb_scale_shift is torch.float64"),
    ("rms_modulate_from_table", [X[:1], X.repeat(1, 1, 2), X[0, :2]], "y is [2, 4, 32], x is [1, 4, 32]"),
    ("ernie_norm_modulate", [X, ROW[:, None, None], ROW[0], ROW[0]], "y is [2, 2, 4, 32], x is [2, 4, 32]"),
    ("ernie_norm_modulate", [X, ROW[:1], ROW[0], ROW[0]], "weight is [1, 32], not [32]"),
    ("ernie_residual_gate", [X, X[:, :1], ROW[0]], "update is [2, 1, 32]"),
    ("ernie_residual_gate", [X, X.bfloat16(), ROW[0]], "Triton's interpreter does not round bfloat16"),
]


@pytest.mark.parametrize(("op", "given", "why"), REFUSED)
def test_unsupported_calls_run_the_reference(
    op: str, given: list[torch.Tensor], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # so that tensors of a CPU are no reason to refuse
    found = kernwright.explain(op, *given)
    assert found.chosen is not None and found.chosen.backend == "torch"
    answer = next(own for own in found.answers if own.implementation.backend == "triton")
    assert why in str(answer.refusal)
    assert all(isinstance(own, torch.Tensor) for own in getattr(ops, op)(*given, backend="torch"))


def test_an_exact_norm_checks_the_device_and_gives_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernwright.ops.ltx2_modulate import exactness
    from kernwright.runtime.call import Call

    def refusal(width: int = 32, shows: bool = True, backend: str = "triton", **scalars: float) -> str:
        monkeypatch.setattr(exactness, "shown", lambda *asked: shows and asked[0] == backend)
        x, require = torch.zeros(1, 4, width), exactness.sums_as_torch(backend)
        return str(require(Call.of(shipped_ops()["rms_modulate"], (x, x, x), scalars)))

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert refusal() == refusal(backend="cuda") == refusal(backend="cuda", eps=0.0) == "None"
    assert "not a multiple of 4" in refusal(width=30)
    assert "eps is not a normal number" in refusal(eps=0.0)
    assert "in another order on cpu" in refusal(shows=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert "a graph is being captured" in refusal()


def test_an_exact_layer_norm_checks_the_device_and_gives_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernwright.ops.norm_modulation import exactness
    from kernwright.runtime.call import Call

    def refusal(width: int = 32, shows: bool = True, backend: str = "triton", **more: Any) -> str:
        monkeypatch.setattr(exactness, "shown", lambda *asked: shows and asked[:2] == (backend, "norm_scale_shift"))
        x = torch.zeros(1, 4, width)
        call = Call.of(shipped_ops()["norm_scale_shift"], (x, x, x), more)
        return str(exactness.is_plain_layer_norm(call) or exactness.norms_as_torch(backend)(call))

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert refusal() == refusal(backend="cuda") == refusal(backend="cuda", eps=0.0) == "None"
    assert refusal(norm_type="rms") == "is for LayerNorm, and the norm is another"
    assert refusal(weight=torch.ones(32)) == "is for a norm without weight and bias"
    assert "not a multiple of 4" in refusal(width=30)
    assert "eps is not a normal number" in refusal(eps=0.0)
    assert "in another order on cpu" in refusal(shows=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert "a graph is being captured" in refusal()


def test_tokens_that_torch_norms_in_another_order_run_the_chain() -> None:
    from kernwright.ops._shared.torch_order import exact_function
    from kernwright.ops.norm_modulation import exactness

    def ran(op: str, x: torch.Tensor) -> str:
        def kernel(*given: Any, **named: Any) -> str:
            return "kernel"

        own = shipped_ops()[op]
        given = [x] * sum(not parameter.optional for parameter in own.tensor_parameters)
        found: Any = exact_function(own, lambda: kernel, exactness.is_chains)(*given)
        return found if isinstance(found, str) else "chain"

    whole = torch.randn(4 * 64 + 1)
    assert ran("norm_scale_shift", whole[:-1].view(1, 4, 64)) == "kernel"
    assert ran("norm_scale_shift", whole[1:].view(1, 4, 64)) == "chain"
    assert ran("norm_scale_shift", whole[1:].view(1, 4, 64)[..., :60]) == "kernel"  # torch norms a copy
    assert ran("residual_norm_scale_shift", whole[1:].view(1, 4, 64)) == "kernel"


def test_the_fast_path_to_an_exact_norm_is_for_checked_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernwright.ops.norm_modulation import exactness
    from kernwright.ops.norm_modulation.family import EXACT

    own = EXACT["norm_scale_shift"]
    monkeypatch.setattr(type(own), "shortcut", lambda *given: lambda *tensors: True)
    monkeypatch.setitem(exactness._shown_widths, ("norm_scale_shift", torch.float32), {64})
    launch = exactness.shown_shortcut("norm_scale_shift", own, torch.device("cpu"), torch.float32)
    assert launch is not None
    assert launch(torch.zeros(2, 64)) and not launch(torch.zeros(2, 32))


def test_tokens_that_torch_sums_in_another_order_run_the_chain() -> None:
    from kernwright.ops._shared.torch_order import exact_function
    from kernwright.ops.ltx2_modulate import exactness

    op = shipped_ops()["rms_modulate"]
    run = exact_function(op, lambda: pytest.fail, exactness.is_chains)  # the kernel is never asked
    x, out = torch.randn(4 * 64 + 1)[1:].view(1, 4, 64), torch.empty(1, 4, 64)
    assert x.data_ptr() % 16 == 4
    assert run(x, x, x, eps=1e-6, out=out) is out
    assert torch.equal(out, op.call({"x": x, "scale": x, "shift": x}, {})[0])
