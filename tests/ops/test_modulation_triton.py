"""The Triton kernel: every case bit by bit in the interpreter, and compiled for an H200 without one."""

from __future__ import annotations

import os
import re

import pytest
import torch
from interpreted_cases import interpreted
from interpreter_server import run_interpreted
from modulation_cases import CASES

from kernwright.core.errors import KernwrightError

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str | None]:
    return interpreted("modulation", list(CASES))


@pytest.mark.parametrize("name", CASES)
def test_every_case_has_the_chains_bits(name: str, outcomes: dict[str, str | None]) -> None:
    assert outcomes[name] is None


@pytest.mark.parametrize("tokens", [1, 19, 8424])
@pytest.mark.parametrize("width", [1, 16, 17, 512, 3072, 3073, 4608, 65536, 70001])
def test_a_tile_is_whole_where_it_can_be(width: int, tokens: int) -> None:
    from kernwright.runtime.triton.configurations import FEW, TILE, of_tiles

    shape = of_tiles(width, tokens * width < FEW)
    assert shape.rows * shape.block <= TILE
    assert shape.rows & (shape.rows - 1) == 0 and shape.block & (shape.block - 1) == 0
    assert shape.block <= max(16, 2 * width - 1)
    if width % 256 == 0:
        assert width % shape.block == 0


def compiled_for_h200(
    dtype: str, modulation: str, shared: bool, fused: bool = False, result: str = "", shift: str = ""
) -> str:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kernwright.ops.modulation.triton import OPTIONS, modulate

    constants = {
        "SCALE": True, "CONSTANT": True, "SCALE_SHARED": shared, "SHIFT_SHARED": shared,
        "ROUND_PRODUCT": dtype == modulation != "fp32", "CAST_SCALE": False, "CAST_SHIFT": False,
        "ROWS": 4, "BLOCK": 1024, "scale_step": 1, "shift_step": 1,
    }  # fmt: skip
    kinds = {
        "x": f"*{dtype}",
        "y": f"*{result or dtype}",
        "scale": f"*{modulation}",
        "shift": f"*{shift or modulation}",
    }
    kinds |= {"constant": "fp32"} | dict.fromkeys(constants, "constexpr")
    signature = {name: kinds.get(name, "i64") for name in modulate.arg_names}
    # The specialisation of a launch with dense tensors: everything is a multiple of 16.
    aligned = {
        (number,): [["tt.divisibility", 16]]
        for number, name in enumerate(modulate.arg_names)
        if (signature[name].startswith("*") or signature[name] == "i64") and not name.endswith(("_per", "tokens"))
    }
    source = ASTSource(modulate, signature, constants, aligned)
    options = {**OPTIONS, "enable_fp_fusion": True} if fused else OPTIONS  # as in a launch
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])


@pytest.mark.parametrize(
    ("dtype", "modulation", "shared"),
    [("bf16", "bf16", True), ("bf16", "fp32", True), ("bf16", "bf16", False), ("fp32", "fp32", True)],
)
def test_it_compiles_for_an_h200_without_one_and_fuses_nothing(dtype: str, modulation: str, shared: bool) -> None:
    ptx = compiled_for_h200(dtype, modulation, shared)
    assert ".target sm_90" in ptx
    # Without .rn the assembler might still fuse them, or flush subnormal numbers.
    assert not re.search(r"\bfma\.|\b(mul|add)\.(ftz\.)?f32", ptx) and ".ftz" not in ptx
    for access in ("ld.global", "st.global"):
        lines = [line for line in ptx.splitlines() if access in line]
        assert lines and all(".v4." in line for line in lines), lines  # 16 bytes at a time


@pytest.mark.parametrize(("dtype", "shift"), [("bf16", "fp16"), ("fp16", "bf16")])
def test_a_sum_of_both_half_widths_is_computed_in_float32(dtype: str, shift: str) -> None:
    """LLVM would compute a float16 result in float16, where a bfloat16 number may overflow or vanish."""
    ptx = compiled_for_h200(dtype, dtype, False, result="fp16", shift=shift)
    assert re.search(r"\badd\.rn\.f32", ptx) and not re.search(r"\badd\.(rn\.)?(b?f16)", ptx)


def test_without_the_option_products_would_be_fused() -> None:
    """This shows that the test above can fail."""
    assert re.search(r"\bfma\.", compiled_for_h200("fp32", "fp32", True, fused=True))


def test_prefer_triton_works_on_a_cpu_with_the_interpreter() -> None:
    code = (
        "import torch, kernwright; from kernwright import ops\n"
        "x, d = torch.randn(1, 4, 32), torch.randn(32)\n"
        "with kernwright.preferring('triton'):\n"
        "    y = ops.scale_shift(x, d, d, contract='exact')\n"
        "    print(kernwright.explain('scale_shift', x, d, d).chosen)\n"
        "print(torch.equal(y, x * (1 + d) + d))\n"
        "a, b = torch.randn(16, 5).t(), torch.randn(16)\n"
        "print(kernwright.explain('broadcast_add', a, b))\n"
        "print(kernwright.explain('scale_shift', x.bfloat16(), d, d))"
    )
    said = run_interpreted(code)
    assert said.split("\n")[:3] == ["triton (exact)", "True", "broadcast_add: torch (exact)"]
    assert "triton (exact): a, torch.float32 [5, 16], and b, torch.float32 [16], are no rows of channels" in said
    assert "triton (exact): Triton's interpreter does not round bfloat16" in said


def test_a_sum_has_gaps_between_rows_of_one_channel_and_none_within_rows() -> None:
    code = (
        "import torch; from kernwright import ops\n"
        "a, b = torch.randn(1, 1, 6, 1), torch.randn(1, 6, 1)\n"
        "whole = torch.full((13,), 7.0)\n"
        "out = ops.broadcast_add(a, b, backend='triton', out=whole.as_strided(a.shape, (13, 13, 2, 1)))\n"
        "print(torch.equal(out, a + b), int((whole == 7).sum()))\n"
        "gaps = torch.randn(6, 4)[:, :1]\n"
        "print(torch.equal(ops.broadcast_add(gaps, b, backend='triton'), gaps + b))\n"
        "a, whole = torch.randn(5, 6), torch.empty(5, 12)\n"
        "try: ops.broadcast_add(a, a, backend='triton', out=whole[:, ::2])\n"
        "except ValueError as error: print(error)"
    )
    assert run_interpreted(code).split("\n")[:3] == ["True 7", "True", "out: out has a last axis with gaps"]


def test_without_the_interpreter_a_cpu_tensor_is_refused() -> None:
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("the interpreter is on")
    from kernwright import ops

    x = torch.zeros(1, 2, 8)
    with pytest.raises(KernwrightError, match=r"triton \(exact\): residual is on cpu"):
        ops.residual_gate(x, x, x, backend="triton")
