"""Calls without elements on every backend. Emulated CUDA kernels are tested with their family's cases."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from empty_cases import CASES, OPS, verify
from interpreted_cases import interpreted_families
from token_cases import arguments, fused

import kernwright
from kernwright import ops
from kernwright.runtime.target import compiler


def of(op: str) -> list[str]:
    return [name for name, case in CASES.items() if case.op == op]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str | None]:
    pytest.importorskip("triton")
    return interpreted_families(("empty",))["empty"]


@pytest.mark.parametrize("op", OPS)
def test_triton_returns_what_the_reference_does(op: str, outcomes: dict[str, str | None]) -> None:
    assert {name: outcomes[name] for name in of(op)} == dict.fromkeys(of(op))


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("op", ["norm_scale_shift", "residual_norm_scale_shift"])
def test_the_kernels_for_a_cpu_return_what_the_reference_does(op: str) -> None:
    for name in of(op):
        verify(CASES[name], partial(getattr(ops, op), backend="cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize(("op", "backend"), [(op, own) for op in OPS for own in fused(op) if own != "cpu"])
def test_a_gpu_returns_what_the_reference_does(op: str, backend: str) -> None:
    for name in of(op):
        verify(CASES[name], partial(getattr(ops, op), backend=backend), "cuda")


@pytest.mark.parametrize("op", OPS)
def test_explain_names_a_kernel(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # so that tensors of a CPU are no reason to refuse
    for name in of(op):
        given = [None if own is None or not own.is_floating_point() else own.float() for own in arguments(CASES[name])]
        own = [one if one is not None else two for one, two in zip(given, arguments(CASES[name]), strict=True)]
        chosen = kernwright.explain(op, *own, **CASES[name].scalars).chosen
        assert chosen is not None and chosen.backend != "torch", name


@pytest.mark.filterwarnings("ignore::kernwright.Fallback")
def test_no_frames_of_tokens_are_refused_by_name() -> None:
    x, frames = torch.zeros(2, 0, 8), torch.zeros(2, 0, 1, 8)
    for call in (ops.scale_shift, ops.norm_scale_shift, ops.norm_tanh_mul_add):
        with pytest.raises(ValueError, match=r"^scale: 0 tokens do not divide into 0 frames"):
            call(x, frames, x)
