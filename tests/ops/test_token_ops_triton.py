"""The Triton kernels of the ops over tokens that have no other kernel yet: every case in the interpreter by the judge's
rule, and compiled for an H200 without one."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any

import pytest
from compiled_kernels import narrow_accesses, ptx_of
from interpreted_cases import interpreted_families
from token_cases import FAMILIES, arguments, every_case

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, str | None]]:
    return interpreted_families(FAMILIES)


@pytest.mark.parametrize(("family", "name"), every_case())
def test_every_case_is_close(family: str, name: str, outcomes: dict[str, dict[str, str | None]]) -> None:
    assert outcomes[family][name] is None


# A kernel's name, and a case for each way through it: tokens held whole, and in pieces.
COMPILED = [
    ("norm_select", "norm_modulate", "residual width 3072"),
    ("norm_select", "norm_modulate", "residual width 65536"),
]


@pytest.mark.parametrize(("family", "kernel", "name"), COMPILED)
def test_it_compiles_for_an_h200_without_one(family: str, kernel: str, name: str) -> None:
    cases: Any = importlib.import_module(f"{family}_cases")
    own = importlib.import_module(f"kernwright.ops.{getattr(cases, 'FAMILY', family)}.triton_kernel")
    case = cases.CASES[name]
    ptx = ptx_of(own, kernel, lambda: getattr(own, case.op)(*arguments(case), **case.scalars))
    narrow = narrow_accesses(ptx, "ld.global")
    if family == "norm_select":  # its index is a number a token
        narrow = [line for line in narrow if ".b32" not in line or ".v2" in line]
    assert not narrow and not narrow_accesses(ptx, "st.global")  # 16 bytes at a time


def test_what_the_kernels_do_not_take_runs_the_reference_and_says_why() -> None:
    code = (
        "import torch, kernwright; from kernwright import ops\n"
        "x, row, index = torch.randn(2, 4, 32), torch.randn(2, 32), torch.ones(2, 4, dtype=torch.int32)\n"
        "with kernwright.prefer('triton'):\n"
        "    print(kernwright.explain('norm_scale_shift_select', x, *[row] * 6, index).chosen)\n"
        "    y, gate = ops.norm_scale_shift_select(x, *[row] * 6, index)\n"
        "    print(torch.equal(gate, row[:, None].expand(2, 4, 32)))\n"
        "print(kernwright.explain('norm_scale_shift_select', x, *[row] * 6, index[:, :1]))\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split("\n")[:3] == ["triton (close)", "True", "norm_scale_shift_select: torch (exact)"]
    assert "the chosen gate is [2, 1, 32], x is [2, 4, 32]" in done.stdout
