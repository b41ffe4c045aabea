"""Generated CuTe-DSL code: what it imports, how it lays rows over threads, and that its kernels compile."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernwright.core.registry import shipped_ops
from kernwright.core.rounding import over_tokens
from kernwright.scaffold.candidate.candidate_folder import new_candidate
from kernwright.scaffold.candidate.cute_code import cute_source
from kernwright.scaffold.candidate.traced_op import FLOAT32, NotPerRow, RowStore, RowValue, TracedOp, TracedVariant

NEEDS_PACKAGE = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"
)
WITHOUT_FMA = "nvvm-options=-fma=0"
# Compiles the kernels of a candidate for calls in three layouts: dense rows, an odd width, and strided elements.
COMPILE = """
import inspect, json, sys
import kernel, torch
dtype, given, choices = getattr(torch, sys.argv[1]), sys.argv[2].split(), json.loads(sys.argv[3])
absent = dict.fromkeys(inspect.signature(kernel._prepare).parameters)
for width, step in ((256, 1), (37, 1), (64, 2)):
    tensors = {name: torch.zeros(2, 5, width * step, dtype=dtype)[..., ::step] for name in given}
    kernel._prepare(**absent | tensors | choices)
print(len(kernel._compiled))
"""


@functools.cache
def source(op: str) -> str:
    return new_candidate(shipped_ops()[op], [], "cutedsl").files["kernel.py"]


def host_functions(*names: str, **given: Any) -> dict[str, Any]:
    """Return functions of the host code, which run without CuTe-DSL."""
    tree = ast.parse(source("norm_scale_shift"))
    nodes = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name in names]
    constants = [each for each in tree.body if isinstance(each, ast.Assign) and "TYPES" not in ast.unparse(each)]
    space: dict[str, Any] = {"dataclass": dataclass, "torch": torch, "EnableTVMFFI": bool, "__name__": "own"} | given
    exec(compile(ast.Module([*constants, *nodes], []), "kernel.py", "exec", dont_inherit=True), space)
    return space


@pytest.mark.parametrize("op", ["rms_norm", "scale_shift", "residual_norm_scale_shift"])
def test_the_code_imports_cutlass_and_torch_alone(op: str) -> None:
    imported = set()
    for node in ast.walk(ast.parse(source(op))):
        if isinstance(node, ast.Import):
            imported |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
    assert imported == {"cutlass", "torch", "dataclasses"}


def test_products_are_rounded_before_a_sum_where_the_contract_is_exact() -> None:
    for name, op in shipped_ops().items():
        try:
            text = source(name)
        except NotPerRow:
            continue
        assert (WITHOUT_FMA in text) == (op.contract == "exact"), name


def test_steps_that_need_elements_are_refused_on_numbers_per_row() -> None:
    def source_of(stored: Callable[[RowValue], RowValue]) -> str:
        loaded = RowValue("load", ("x",), FLOAT32, "vector", 0)
        mean = RowValue("mean", (loaded,), FLOAT32, "row", 1)
        result = stored(mean)
        values = tuple(dict.fromkeys((loaded, mean, result)))
        variant = TracedVariant((), (), values, (RowStore("x", result),), (("x", ""),))
        parts = {"tensors": (("x", False),), "scalars": (), "outputs": (), "inplace": ("x",), "contract": "close"}
        return cute_source(TracedOp(name="own", variants=(variant,), **parts))  # type: ignore[arg-type]

    with pytest.raises(NotPerRow, match="stores one number per row into x"):
        source_of(lambda mean: mean)
    with pytest.raises(NotPerRow, match="ReLU"):
        source_of(lambda mean: RowValue("relu", (mean,), FLOAT32, "row", 2))


@given(
    width=st.integers(1, 20_000), vector=st.sampled_from([1, 2, 4, 8, 16]), vectors=st.sampled_from([1, 2, 8]),
    threads=st.sampled_from([64, 256, 1024]), start=st.integers(0, 9),
)  # fmt: skip
def test_the_threads_of_a_row_cover_it(width: int, vector: int, vectors: int, threads: int, start: int) -> None:
    space = host_functions("Plan", "_plan", "_is_aligned", "_power_of_2")
    space |= {"VECTOR": vector, "VECTORS": vectors, "THREADS": threads}
    row = torch.empty(start + width, dtype=torch.bfloat16)[start:].expand(1, 1, 1, width)
    plan = space["_plan"]([row], width)
    covered = plan.vector * plan.vectors * plan.lanes
    assert covered - plan.vector * plan.lanes < width <= covered
    assert plan.full == (covered == width)
    assert plan.lanes & (plan.lanes - 1) == 0
    assert plan.lanes * plan.rows <= 1024
    assert width % plan.vector == 0
    assert plan.vector == 1 or (row.data_ptr() % min(16, 2 * plan.vector) == 0)


@pytest.mark.parametrize("shape", [(1,), (8,), (2, 8), (2, 1, 8), (2, 6, 8), (2, 3, 1, 8)])
@pytest.mark.parametrize("other", [(2, 8), (2, 3, 1, 8)])
def test_modulations_are_laid_over_tokens_as_in_the_definition(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    x, modulation, second = torch.randn(2, 6, 8), torch.randn(shape), torch.randn(other)
    expected = [over_tokens(each, x).expand(2, 6, 8) for each in (x, modulation, second)]
    views = host_functions("_over_tokens")["_over_tokens"]([x, modulation, second], [1, 2], x)
    shape = (2, 3, 2, 8) if any(each.ndim == 4 for each in views) else (2, 6, 8)
    for view, wanted in zip(views, expected, strict=True):
        assert torch.equal(view.expand(shape).reshape(2, 6, 8), wanted)
    storages = [each.untyped_storage().data_ptr() for each in views]
    assert storages == [each.untyped_storage().data_ptr() for each in (x, modulation, second)], "nothing is copied"


def compiled(op: str, dtype: str, tensors: str, folder: Path, **choices: str) -> int:
    new_candidate(shipped_ops()[op], [], "cutedsl").write(folder / "own")
    keep = {"CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_KEEP": "ptx", "CUTE_DSL_DUMP_DIR": str(folder)}
    environment = os.environ | keep | {"PYTHONPATH": str(folder / "own")}
    words = [sys.executable, "-c", COMPILE, dtype, tensors, json.dumps(choices)]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


@NEEDS_PACKAGE
def test_an_exact_kernel_compiles_without_fused_multiply_add(tmp_path: Path) -> None:
    assert compiled("residual_gate", "float32", "residual update gate out", tmp_path) == 3
    texts = [path.read_text() for path in tmp_path.glob("*.ptx")]
    assert texts
    assert not any("fma.rn" in text for text in texts)
    assert any(".v4.b32" in text for text in texts), "dense rows are loaded 16 bytes at a time"


@NEEDS_PACKAGE
def test_a_kernel_with_means_compiles_for_each_layout(tmp_path: Path) -> None:
    assert compiled("norm_tanh_mul_add", "float16", "x scale shift y", tmp_path, norm_type="rms") == 3
    assert any("shfl.sync" in path.read_text() for path in tmp_path.glob("*.ptx"))
