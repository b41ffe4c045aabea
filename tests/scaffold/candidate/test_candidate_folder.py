"""New candidates: generated or refused, complete, and ready for the tuner. The judge runs some in tests/cli."""

from __future__ import annotations

import ast
import shutil
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
