"""The Triton norms: every case in the interpreter by the judge's rule, and compiled for an H200 without one."""

from __future__ import annotations

import pytest
import torch
from compiled_kernels import narrow_accesses, ptx_of
from interpreted_cases import interpreted
from interpreter_server import run_interpreted
from plain_norm_cases import CASES, Case

pytest.importorskip("triton")
INTERPRETED = [name for name in CASES if not name.startswith("many")]  # in the interpreter a program takes milliseconds


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str | None]:
    return interpreted("plain_norm", INTERPRETED)


@pytest.mark.parametrize("name", INTERPRETED)
def test_every_case_is_close(name: str, outcomes: dict[str, str | None]) -> None:
    assert outcomes[name] is None


@pytest.mark.parametrize(("width", "rms"), [(3072, False), (128, True), (65536, False)])
def test_it_compiles_for_an_h200_without_one(width: int, rms: bool) -> None:
    from kernwright.ops.plain_norm import triton as triton_kernel

    bf16 = torch.bfloat16
    case = Case("width", "rms" if rms else "layer", (2, width), weight=bf16, bias=None if rms else bf16)
    ptx = ptx_of(triton_kernel, "norm_rows", lambda: getattr(triton_kernel, case.op)(*case.arguments()))
    loads, stores = (narrow_accesses(ptx, access) for access in ("ld.global", "st.global"))
    # 16 bytes at a time, except for a weight that several small rows of a program share
    assert not stores and (not loads or (width == 128 and len(loads) <= 2)), loads


def test_rows_merge() -> None:
    from kernwright.ops._shared.rows import batches

    def runs(x: torch.Tensor, y: torch.Tensor | None = None) -> list[tuple[int, ...]]:
        views = batches(x, torch.empty_like(x) if y is None else y)
        return [tuple(own.shape[:2]) for own, _ in views]

    x = torch.zeros(2, 24, 7, 128)
    assert runs(torch.zeros(2, 7, 72, 128)[:, :, 24:48]) == [(14, 24)]
    assert runs(x.transpose(1, 2)) == [(1, 336)]
    assert runs(x.transpose(1, 2), torch.zeros(2, 7, 24, 128)) == [(7, 24)] * 2
    assert runs(torch.zeros(3, 6, 6, 64)[:2, :5, :4]) == [(5, 4)] * 2
    assert runs(torch.zeros(96)) == [(1, 1)]
    assert runs(torch.zeros(0, 96)) == []


def test_every_row_is_in_the_views_once_and_nothing_is_copied() -> None:
    from kernwright.ops._shared.rows import batches

    whole = torch.zeros(4, 5, 6, 8)
    x = whole[1:, :4, 2:]
    for (own,) in batches(x):
        own += 1
    assert (x == 1).all() and whole.sum() == x.numel()


def test_prefer_triton_works_on_a_cpu_with_the_interpreter() -> None:
    code = (
        "import torch, kernwright; from kernwright import ops\n"
        "x, d = torch.randn(2, 4, 32).transpose(0, 1), torch.randn(32)\n"
        "out = torch.empty(4, 2, 32)\n"
        "with kernwright.preferring('triton'):\n"
        "    y = ops.rms_norm(x, d); ops.layer_norm(x, None, d, out=out)\n"
        "    print(kernwright.explain('rms_norm', x, d).chosen)\n"
        "print(torch.allclose(y, ops.rms_norm(x, d, backend='torch'), atol=1e-5))\n"
        "print(torch.allclose(out, ops.layer_norm(x, None, d, backend='torch'), atol=1e-5))"
    )
    assert run_interpreted(code).split() == ["triton", "(close)", "True", "True"]
