"""New candidates: generated or refused, complete, and ready for the tuner. The judge runs some in tests/cli."""

from __future__ import annotations

import ast
import importlib
import shutil
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.campaign.tuning.machine_code import CodeCompiler
from kernwright.campaign.tuning.template import Template
from kernwright.core.errors import ExistsAlready, KernwrightError
from kernwright.core.op import define
from kernwright.core.registry import shipped_ops
from kernwright.scaffold.candidate import cute_code, triton_code
from kernwright.scaffold.candidate.candidate_folder import LANGUAGES, new_candidate
from kernwright.scaffold.candidate.row_trace import UNARY_STEPS
from kernwright.scaffold.candidate.traced_op import NotPerRow
from kernwright.tasks.candidate import load_candidate
from kernwright.tasks.tensor import TensorSpec

PER_ROW = {
    "norm_scale_shift", "residual_norm_scale_shift", "norm_tanh_mul_add", "norm_tanh_mul_add_norm_scale", "layer_norm",
    "rms_norm", "add_norm", "fused_add_rms_norm_", "rms_modulate", "dual_modulate", "ernie_norm_modulate",
    "ernie_residual_norm_modulate", "ernie_residual_gate", "scale_shift", "residual_gate", "broadcast_add",
}  # fmt: skip


@pytest.mark.parametrize("op", shipped_ops())
def test_a_kernel_is_generated_or_refused(op: str) -> None:
    for language in ("cpp", "cuda", "triton", "cutedsl"):
        if op in PER_ROW:
            written = new_candidate(shipped_ops()[op], [], language).files
            assert "kernel" in "".join(written)
            if language in ("triton", "cutedsl"):
                ast.parse(written["kernel.py"])
        else:
            with pytest.raises(NotPerRow, match=op):
                new_candidate(shipped_ops()[op], [], language)


@pytest.mark.parametrize(
    ("argument", "language", "is_taken"),
    [
        ("line", "cutedsl", False),  # assigned in the kernel
        ("line", "triton", True),
        ("row", "triton", False),
        ("stream", "cutedsl", False),  # an argument twice
        ("tl", "triton", False),  # a module
        ("torch", "cutedsl", False),
        ("map", "triton", False),  # a builtin that the code calls
        ("num_warps", "triton", False),  # an option of the launch
        ("input", "triton", True),
        ("line", "cpp", True),
    ],
)
def test_an_argument_with_a_name_of_the_generated_code_is_refused(argument: str, language: str, is_taken: bool) -> None:
    scope: dict[str, Any] = {"Tensor": torch.Tensor}
    exec(f"def added(x: Tensor, {argument}: Tensor) -> Tensor:\n    return x * 2 + {argument}\n", scope)
    op = define(outputs=["y"], activations=["x"])(scope["added"])
    if is_taken:
        assert new_candidate(op, [], language).files
    else:
        with pytest.raises(NotPerRow, match=f"its argument '{argument}' has a name"):
            new_candidate(op, [], language)


def odd_op(text: str, outputs: tuple[str, ...] = ("y",), **options: Any) -> Any:
    """Return the op `odd` of a definition in text."""
    scope: dict[str, Any] = {"Tensor": torch.Tensor, "torch": torch}
    exec(text, scope)
    return define(outputs=outputs, activations=["x"], **options)(scope["odd"])


@pytest.mark.parametrize("language", ["cpp", "cuda", "triton", "cutedsl"])
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("return x * 2 if n == 2 else x", "the number n"),
        ("return -x if n else x", "the number n"),
        ("return x * 2 if x.dtype == torch.float32 else x", "a dtype"),
        ("return x * 2 if x.shape[-1] == 64 else x", "the last axis"),
        ("return x if x == 0 else x * 2", "the values"),
        ("return x * float('inf')", "the number inf"),
    ],
)
def test_steps_that_a_trace_cannot_know_are_refused(language: str, body: str, named: str) -> None:
    """Otherwise the kernel would have one of two branches."""
    with pytest.raises(NotPerRow, match=named):
        new_candidate(odd_op(f"def odd(x: Tensor, *, n: int = 2) -> Tensor:\n    {body}\n"), [], language)


@pytest.mark.parametrize("body", ["x *= g", "x -= g", "x /= g", "torch.relu_(x)", "torch.nn.functional.silu(x, True)"])
def test_a_changed_argument_is_stored(body: str) -> None:
    op = odd_op(f"def odd(x: Tensor, g: Tensor) -> None:\n    {body}\n", (), inplace=["x"])
    try:
        text = new_candidate(op, [], "triton").files["kernel.py"]
    except NotPerRow:
        assert body == "torch.relu_(x)", "it is not one of the functions that are known"
    else:
        assert "tl.store(x_row" in text


@pytest.mark.parametrize("language", ["cpp", "cuda", "triton", "cutedsl"])
def test_texts_and_numbers_are_quoted(language: str, tmp_path: Path) -> None:
    text = """def odd(x: Tensor, *, mode: str = 'a"b\\\\\\n', limit: float = float("inf")) -> Tensor:
    return x * 2 + limit if mode == "tail" else x.mean(dim=-1, keepdim=True) * x\n"""
    new_candidate(odd_op(text), [], language).write(tmp_path / "own")
    if (source := tmp_path / "own" / "kernel.py").exists():
        assert 'float("inf")' in source.read_text() and ast.parse(source.read_text())
    elif language == "cpp":
        assert CodeCompiler("host").compile(load_candidate(tmp_path / "own")).problem == ""
    with pytest.raises(NotPerRow, match="'class' is a word of Python"):
        new_candidate(odd_op("def odd(x: Tensor) -> Tensor:\n    return x * 2\n", ("class",)), [], "triton")


def test_arguments_with_names_of_cpp(tmp_path: Path) -> None:
    names = ("call", "default", "ffi", "errno", "SUMS", "run", "prepare", "int64_t")
    text = f"def odd(x: Tensor, {': Tensor, '.join(names)}: Tensor) -> Tensor:\n    return x + {' + '.join(names)}\n"
    new_candidate(odd_op(text, ("new",)), [], "cpp").write(tmp_path / "own")
    assert CodeCompiler("host").compile(load_candidate(tmp_path / "own")).problem == ""


@dataclass(frozen=True)
class Row:
    inputs: dict[str, TensorSpec]
    scalars: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("dtype", "takers"),
    [("bool", {"triton"}), ("i64", {"triton"}), ("fp64", set()), ("bf16", {"cpp", "cuda", "triton"})],
)
def test_rows_that_a_kernel_could_not_read_are_refused(dtype: str, takers: set[str]) -> None:
    op = odd_op("def odd(x: Tensor, mask: Tensor) -> Tensor:\n    return x * mask\n")
    row = Row({name: TensorSpec(shape=(4, 8), dtype=each) for name, each in (("x", "fp32"), ("mask", dtype))})
    for language in ("cpp", "cuda", "triton"):
        if language in takers:
            assert new_candidate(op, [row], language).files
        else:
            with pytest.raises(NotPerRow, match=f"mask in {dtype}"):
                new_candidate(op, [row], language)


HELPERS = """
import functools
import math
import torch
from torch import Tensor
from torch.nn.functional import silu as act

FAR, NONE, KINDS = float("-inf"), None, {torch.float32: 1.0}
half = lambda x: x * 0.5


@functools.lru_cache
def constant(n): return math.sqrt(n)


def plain(x): return half(x) + constant(4)


again = plain


def odd(x: Tensor, *, limit: float = FAR) -> Tensor:
    return again(act(x)).clamp(min=limit) * KINDS[torch.float32] * (NONE or 1)
"""


def test_helpers_of_any_kind_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helpers_of_odd.py").write_text(HELPERS)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("helpers_of_odd")
    op = define(outputs=["y"], activations=["x"])(module.odd)
    space: dict[str, Any] = {"__name__": "own"}
    exec(new_candidate(op, [], "python").files["kernel.py"], space)
    x = torch.randn(4, 8)
    assert torch.equal(space["odd"](x), module.odd(x))
    monkeypatch.setattr(module, "FAR", torch.ones(1))
    with pytest.raises(KernwrightError, match="FAR is a Tensor"):
        new_candidate(op, [], "python")


def test_every_language_has_code_for_every_function() -> None:
    native = files("kernwright.scaffold.templates.candidate").joinpath("operands.template").read_text()
    for name in UNARY_STEPS:
        assert f"float {name}_of(float x)" in native
        assert name in triton_code.UNARY and name in cute_code.UNARY


@pytest.mark.parametrize("language", ["cpp", "cuda", "triton", "cutedsl"])
def test_the_tuner_takes_the_folder_as_it_is(language: str, tmp_path: Path) -> None:
    new_candidate(shipped_ops()["fused_add_rms_norm_"], [], language).write(tmp_path / "own")
    template = Template.read(tmp_path / "own")
    assert template.current() == template.space.defaults
    assert len(list(template.space.all_configurations(1000))) >= 5
    for name in template.space.parameters:  # the code uses each constant, besides its definition
        assert template.text.count(name) >= 2


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_a_cuda_candidate_compiles_without_spills(tmp_path: Path) -> None:
    new_candidate(shipped_ops()["fused_add_rms_norm_"], [], "cuda").write(tmp_path / "own")
    code = CodeCompiler("sm_90").compile(load_candidate(tmp_path / "own"))
    assert code.problem == ""
    assert [kernel.spill_stores for kernel in code.kernels] == [0] * len(code.kernels) != []


@pytest.mark.parametrize("op", shipped_ops())
def test_the_eager_chain_of_any_op_is_a_file_of_its_own(op: str) -> None:
    text = new_candidate(shipped_ops()[op], [], "python").files["kernel.py"]
    assert "kernwright" not in text.partition('"""\n')[2], "it imports nothing of ours"
    space: dict[str, object] = {"__name__": "own"}
    exec(compile(text, "kernel.py", "exec", dont_inherit=True), space)
    assert callable(space[op])


def test_the_eager_chain_computes_what_the_definition_does() -> None:
    space: dict[str, Any] = {"__name__": "own"}
    exec(new_candidate(shipped_ops()["norm_scale_shift"], [], "python").files["kernel.py"], space)
    x, scale, shift = torch.randn(2, 5, 64), torch.randn(2, 64), torch.randn(2, 64)
    expected = shipped_ops()["norm_scale_shift"].reference(x, scale, shift)
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(space["norm_scale_shift"](x, scale, shift), expected)


def test_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    candidate = new_candidate(shipped_ops()["rms_norm"], [], "cpp")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "kernel.cc").write_text("mine")
    with pytest.raises(ExistsAlready, match="own"):
        candidate.write(tmp_path / "own")
    assert [path.name for path in tmp_path.rglob("*")] == ["own", "kernel.cc"]
    assert (tmp_path / "own" / "kernel.cc").read_text() == "mine"


def test_an_unknown_language_is_refused_with_the_known_ones() -> None:
    assert LANGUAGES[:4] == ("triton", "cuda", "cpp", "cutedsl")
    with pytest.raises(KernwrightError, match="did you mean triton"):
        new_candidate(shipped_ops()["rms_norm"], [], "tritn")
