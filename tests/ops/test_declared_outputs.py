"""An eager call allocates outputs of the shapes and dtypes that the definition returns, for every case of every
family."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from kernwright.core.registry import shipped_families, shipped_ops
from kernwright.runtime.outputs import Promise

FAMILIES = ("norm_select", "norm_tanh", "ltx2_modulate", "ernie", "residual_norm", "norm_modulation", "plain_norm")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_case_is_allocated_as_its_definition_returns_it(family: str) -> None:
    cases: dict[str, Any] = importlib.import_module(f"{family}_cases").CASES
    for name, case in cases.items():
        op = shipped_ops()[case.op]
        # The import declares the op's outputs.
        importlib.import_module(f"kernwright.ops.{shipped_families()[case.op]}.family")
        given = case.tensors()
        tensors = [given[own.name] for own in op.tensor_parameters] if isinstance(given, dict) else list(given)
        tensors += [None] * (len(op.tensor_parameters) - len(tensors))
        scalars = {**op.scalar_defaults, **case.scalars}
        with torch.no_grad():
            returned = op.call(dict(zip([own.name for own in op.tensor_parameters], tensors, strict=True)), scalars)
        made = Promise(op)(tensors, scalars)
        found = [(list(own.shape), own.dtype) for own in made]
        assert found == [(list(own.shape), own.dtype) for own in returned], name
