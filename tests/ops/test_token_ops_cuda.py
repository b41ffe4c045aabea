"""The CUDA kernels of the ops over tokens compile for a GPU that is not here; the emulated tests run them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from kernwright.ops.ltx2_modulate import family as ltx2_modulate
from kernwright.ops.norm_modulation import family as norm_modulation
from kernwright.ops.residual_norm import family as residual_norm
from kernwright.ops.residual_norm.family import GENERAL_SUMS
from kernwright.runtime import library
from kernwright.runtime.library import Library, include_paths
from kernwright.runtime.target import Target, nvcc


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
def test_they_compile_for_the_oldest(tmp_path: Path) -> None:
    """The one of which most is asked, for the GPU that can least; not optimised, which a build would wait for."""
    own = norm_modulation.CUDA["residual_norm_scale_shift_select"].library(torch.bfloat16)
    with patch.object(library, "CUDA_FLAGS", ("-Xptxas=-O0", "-Xcicc=-O1")):
        assert own.build(Target("sm_75"), tmp_path).exists()


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
@pytest.mark.parametrize(
    "own",
    [
        ltx2_modulate.CUDA["dual_modulate_from_table"].library(torch.float16),
        norm_modulation.EXACT["residual_norm_scale_shift"].library(torch.bfloat16),
    ],
    ids=lambda own: own.name,
)
def test_kernels_in_torchs_order_compile_too(own: Library, tmp_path: Path) -> None:
    """Those of which most is asked; alone, as what is around them compiles in the emulation."""
    compile_kernels(own, "sm_75", tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_kernels_for_every_form_of_a_sum_compile_too(architecture: str, tmp_path: Path) -> None:
    macros = residual_norm.CUDA["add_norm"].library(torch.bfloat16).macros
    compile_kernels(Library("general_sums", GENERAL_SUMS, macros), architecture, tmp_path)


def compile_kernels(own: Library, architecture: str, folder: Path) -> None:
    (kernel,) = (source for source in own.sources if source.suffix == ".cu")
    macros = [f"-D{name}={value}" for name, value in own.macros]
    folders = [f"-I{folder}" for folder in include_paths(own.sources)]
    flags = ["-cubin", f"-arch={architecture}", "-std=c++17", "-Xptxas=-O0", "-Xcicc=-O1"]
    made = folder / "cubin"
    subprocess.run([str(nvcc()), *flags, *macros, *folders, "-o", str(made), str(kernel)], check=True)
    assert b"ELF" in made.read_bytes()[:4]
