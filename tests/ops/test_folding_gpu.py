"""x with more than three axes on a GPU: every case on every backend, and the fast path."""

from __future__ import annotations

from functools import partial

import pytest
from folded_cases import CASES, OPS, Case, of, parts, verify
from token_cases import arguments, fused

import kernwright
from kernwright import ops

pytestmark = pytest.mark.gpu
CALLS = [(op, backend) for op in OPS for backend in fused(op) if backend != "cpu"]


@pytest.mark.parametrize(("op", "backend"), CALLS)
def test_every_case_holds(op: str, backend: str) -> None:
    for case in of(op).values():
        verify(case, partial(getattr(ops, op), backend=backend), "cuda")


@pytest.mark.parametrize("op", OPS)
def test_a_repeated_call_on_the_fast_path_has_the_same_result(op: str) -> None:
    for case in (Case("again", op, ("BF1", "B11")), CASES[f"{op} walked"]):
        given = arguments(case, "cuda")
        with kernwright.preferring(strict=True):
            first, second = (parts(getattr(ops, op)(*given)) for _ in range(2))
        for one, two in zip(first, second, strict=True):
            assert one.equal(two) and one.stride() == two.stride()


@pytest.mark.parametrize("op", ["norm_scale_shift", "residual_norm_scale_shift", "rms_modulate"])
def test_the_exact_contract_works_with_more_axes_too(op: str) -> None:
    case = Case("exactly", op, ("BF1", "B11"), width=512)
    given = arguments(case, "cuda")
    found = kernwright.explain(op, *given, contract="exact").chosen
    exact = parts(getattr(ops, op)(*given, contract="exact"))
    wanted = parts(getattr(ops, op)(*given, backend="torch"))
    assert found is not None and all(one.equal(two) for one, two in zip(exact, wanted, strict=True))
