"""References as files that need only torch, and the candidates that campaigns start with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_campaign import make_candidate, make_task

from kernwright.campaign.files.reference import reference_file
from kernwright.campaign.files.starting_candidate import given_candidate, starting_candidate
from kernwright.core.errors import KernwrightError
from kernwright.core.registry import shipped_ops
from kernwright.tasks.catalog import find_task, list_tasks

OPS = [(task, op) for task in sorted(list_tasks()) for op in find_task(task).schemas]


@pytest.mark.parametrize(("task", "op"), OPS)
def test_every_shipped_op_has_a_reference_without_imports_of_kernwright(task: str, op: str) -> None:
    for text in (reference_file(find_task(task), op), starting_candidate(find_task(task), op, "python")["kernel.py"]):
        namespace: dict[str, object] = {}
        exec(compile(text, op, "exec"), namespace)
        assert callable(namespace[op])
        assert not any("import" in line and "kernwright" in line for line in str(text).splitlines())


def test_a_starting_candidate_computes_what_the_op_defines() -> None:
    op = shipped_ops()["norm_scale_shift"]
    namespace: dict[str, object] = {}
    exec(starting_candidate(find_task("norm_scale_shift"), op.name, "python")["kernel.py"], namespace)
    x, scale, shift, weight = torch.randn(2, 5, 8), torch.randn(2, 8), torch.randn(2, 8), torch.randn(8)
    for scalars in ({"norm_type": "layer"}, {"norm_type": "rms", "eps": 1e-3}):
        expected = op.reference(x, scale, shift, weight, None, **scalars)
        torch.testing.assert_close(namespace[op.name](x, scale, shift, weight, **scalars), expected)  # type: ignore[operator]


def test_helpers_and_constants_of_a_users_file_are_copied(tmp_path: Path) -> None:
    ops = """
import math
from torch import Tensor
from kernwright.core.op import define

HALF = 0.5

def halved(x: Tensor) -> Tensor:
    return x * HALF

@define(outputs=["y"], activations=["x"])
def twice(x: Tensor, *, power: float = 2.0) -> Tensor:
    return halved(x) * math.pow(2.0, power)
"""

    folder = make_task(tmp_path / "tiny")
    (folder / "definitions.py").write_text(ops)
    namespace: dict[str, object] = {}
    exec(starting_candidate(find_task(str(folder)), "twice", "python")["kernel.py"], namespace)
    assert torch.equal(namespace["twice"](torch.ones(3)), torch.full((3,), 2.0))  # type: ignore[operator]


def test_a_candidate_of_another_op_is_refused(tmp_path: Path) -> None:

    folder = make_candidate(tmp_path / "given")
    assert set(given_candidate(folder, "twice")) == {"candidate.toml", "kernel.py"}
    with pytest.raises(KernwrightError, match="implements twice"):
        given_candidate(folder, "thrice")
    with pytest.raises(KernwrightError, match="--from"):
        starting_candidate(find_task("norm_scale_shift"), "norm_scale_shift", "cutedsl")
