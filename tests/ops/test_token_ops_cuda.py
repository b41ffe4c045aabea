"""The CUDA kernels of the ops over tokens compile without a GPU. The emulated tests run them."""

from __future__ import annotations

import pytest
import torch
from builds import UNOPTIMISED, shared_compilation

from kernwright.ops.ltx2_modulate import family as ltx2_modulate
from kernwright.ops.norm_modulation import family as norm_modulation
from kernwright.ops.residual_norm import family as residual_norm
from kernwright.runtime.library import Library
from kernwright.runtime.target import nvcc


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
def test_they_compile_for_the_oldest_gpu() -> None:
    """The most demanding kernel for the oldest GPU, without optimisation to save build time."""
    own = norm_modulation.CUDA["residual_norm_scale_shift_select"].library(torch.bfloat16)
    compile_kernels(own, "sm_75")


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
def test_kernels_in_torchs_order_compile_too(own: Library) -> None:
    """The most demanding kernels, alone, because the code around them compiles in the emulation."""
    compile_kernels(own, "sm_75")


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
def test_kernels_for_every_form_of_a_sum_compile_too() -> None:
    """test_turns_cuda.py compiles them for sm_90. Code for newer GPUs is in headers that other tests compile.

    Kernels of float32 tokens compile fastest, and take residuals and second inputs of every dtype.
    """
    macros = residual_norm.CUDA["add_norm"].library(torch.float32).macros
    compile_kernels(Library("general_sums", residual_norm.GENERAL_SUMS, macros), "sm_75")


def compile_kernels(own: Library, architecture: str) -> None:
    made = shared_compilation(own, architecture, "cubin", *UNOPTIMISED)
    assert b"ELF" in made.read_bytes()[:4]
