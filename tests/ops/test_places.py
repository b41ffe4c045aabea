"""Places of results with `out=`: every backend accepts the same ones, with correct values."""

from __future__ import annotations

import json
from typing import Any

import place_cases
import pytest
import torch
from interpreter_server import run_interpreted

from kernwright import ops
from kernwright.core.registry import shipped_ops
from kernwright.ops.catalog import dispatcher
from kernwright.runtime.target import compiler


def test_every_op_with_kernels_has_its_case() -> None:
    assert {"residual_norm_scale_shift", "add_norm", "dual_modulate", "broadcast_add"} < set(place_cases.NAMES)
    several = {name for name in place_cases.NAMES if len(shipped_ops()[name].outputs) > 1}
    refused = {name for name in several for _ in place_cases.refused(*asked(name, "torch"))}
    assert refused >= {"residual_norm_scale_shift", "norm_tanh_mul_add_norm_scale", "dual_modulate"}


def asked(name: str, backend: Any) -> tuple[Any, Any, Any]:
    op = shipped_ops()[name]
    return op, lambda *given, **more: getattr(ops, name)(*given, backend=backend, **more), place_cases.tensors_of(op)


@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, own) for name in place_cases.NAMES for own in dispatcher(name).backends if own in ("torch", "cpu")],
)
def test_results_may_replace_an_activation_and_nothing_else(name: str, backend: str) -> None:
    if backend == "cpu" and compiler() is None:
        pytest.skip("there is no C++ compiler")
    with torch.no_grad():  # so that later calls take the fast path, if there is one
        assert place_cases.problem(name, backend) is None


@pytest.fixture(scope="module")
def interpreted() -> dict[str, str | None]:
    pytest.importorskip("triton")
    said = run_interpreted("import place_cases; place_cases.print_problems()")
    return json.loads(said.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", place_cases.NAMES)
def test_the_same_holds_for_triton_kernels(name: str, interpreted: dict[str, str | None]) -> None:
    assert interpreted[name] is None


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_a_result_of_a_single_row_must_not_replace_the_weight(name: str) -> None:
    x, weight = torch.randn(8), torch.randn(8)
    with pytest.raises(ValueError, match=r"^out: y overlaps weight"):
        getattr(ops, name)(x, weight, backend="torch", out=weight)


def test_a_result_must_not_replace_a_tensor_that_also_modulates() -> None:
    x, row = torch.randn(2, 5, 16), torch.randn(16)
    with pytest.raises(ValueError, match=r"^out: res_out overlaps scale"):
        ops.residual_norm_scale_shift(x, x.clone(), x, row, backend="torch", out=(torch.empty_like(x), x))
