"""kernwright build: a folder of libraries that a machine without a compiler uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError
from kernwright.core.runtime_interface import BUILDS_VARIABLE
from kernwright.ops import builds as ahead
from kernwright.runtime import library
from kernwright.runtime.library import CACHE_VARIABLE, Library
from kernwright.runtime.target import Target, compiler, nvcc


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["build", *map(str, arguments)])


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_built_libraries_run_without_a_compiler(tmp_path: Path) -> None:
    done = call("--arch", "cpu", "--out", tmp_path / "ahead")
    assert done.exit_code == 0, done.output
    assert "1 built" in done.output
    code = (
        "import torch, kernwright; from kernwright import ops\n"
        "x, d = torch.randn(1, 4, 32), torch.randn(32)\n"
        "print(kernwright.explain('norm_scale_shift', x, d, d).chosen, ops.norm_scale_shift(x, d, d).shape)"
    )
    bare = {**os.environ, "PATH": str(tmp_path), "CXX": "no-such-compiler", CACHE_VARIABLE: str(tmp_path / "cache")}
    found = {}
    for where in ("ahead", "elsewhere"):
        environment = {**bare, BUILDS_VARIABLE: str(tmp_path / where)}
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True, env=environment
        )
        found[where] = run.stdout.strip()
    assert found["ahead"] == "cpu (close) torch.Size([1, 4, 32])"
    assert found["elsewhere"] == "torch (exact) torch.Size([1, 4, 32])"
    assert not (tmp_path / "cache").exists()


@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
def test_one_library_for_a_gpu_that_is_not_here_and_not_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is built here never runs.
    monkeypatch.setattr(library, "CUDA_FLAGS", ("-Xptxas=-O0", "-Xcicc=-O1"))
    monkeypatch.setattr(library, "HOST_FLAGS", ("-O0",))
    arguments = ("--arch", "sm_80", "--out", tmp_path, "--only", "ernie_norm_modulate_fp32")
    assert call(*arguments).exit_code == 0
    (built,) = tmp_path.glob("*.so")
    assert built.name.startswith("ernie_norm_modulate_fp32-sm_80-")
    before = built.stat().st_mtime_ns
    assert call(*arguments).exit_code == 0
    assert built.stat().st_mtime_ns == before


def test_an_architecture_that_gets_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "build", lambda own, target, folder: folder / own.file_name(target))
    done = call("--arch", "cpu", "--arch", "sm_90", "--arch", "sm_80", "--out", tmp_path, "--only", "plain_norm_fp16")
    assert done.exit_code == 0, done.output
    assert "--only plain_norm_fp16: matches no library for cpu" in done.output
    assert "library for sm_" not in done.output and "2 built" in done.output


def test_every_family_with_native_kernels_is_among_them() -> None:
    assert {library.name for library in ahead.libraries(Target("cpu"))} == {"norm_modulation"}
    names = {library.name for library in ahead.libraries(Target("sm_90"))}
    mine = {"norm_scale_shift_bf16", "residual_norm_scale_shift_fp32", "plain_norm_fp16", "modulation_bf16_fp32"}
    mine |= {"norm_scale_shift_select_bf16", "norm_tanh_mul_add_norm_scale_fp32"}
    mine |= {"rms_modulate_from_table_fp32", "dual_modulate_from_table_bf16", "ernie_residual_norm_modulate_fp16"}
    assert mine <= names
    assert len(ahead.libraries(Target("sm_90"))) == len(names)  # a library that two families need exists once


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--arch", "hopper"], "'hopper' is not an architecture"),
        (["--arch", "cpu", "--only", "no_such"], "--only no_such: matches no library"),
    ],
)
def test_what_cannot_be_built_is_named(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    done = call(*arguments, "--out", tmp_path)
    assert isinstance(done.exception, KernwrightError)
    assert complaint in str(done.exception)
