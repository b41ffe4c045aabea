"""Kernels that are launched ahead of their turn (`launching.cuh`) wait for it before they access memory. This is
checked in machine code, because an assembler may move loads ahead of the wait."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from builds import shared_compilation, shared_with_slow_host
from machine_code import WAIT, ahead_of_turn, cuobjdump, kernels_in

from kernwright.ops.ernie import family as ernie
from kernwright.ops.ltx2_modulate import family as ltx2_modulate
from kernwright.ops.modulation import family as modulation
from kernwright.ops.norm_modulation import family as norm_modulation
from kernwright.ops.norm_tanh import family as norm_tanh
from kernwright.ops.plain_norm import family as plain_norm
from kernwright.ops.residual_norm import family as residual_norm
from kernwright.runtime.library import CUDA_FLAGS, Library
from kernwright.runtime.target import Target, nvcc

pytestmark = [
    pytest.mark.skipif(nvcc() is None, reason="there is no nvcc"),
    pytest.mark.skipif(cuobjdump() is None, reason="there is no cuobjdump"),
]
BF16, FP32 = torch.bfloat16, torch.float32
# Every file of kernels once: the ones that other tests load are built already, and the others use the dtype that
# compiles fastest.
LOADED = (
    norm_modulation.CUDA["norm_scale_shift"].library(BF16),
    plain_norm.CUDA["rms_norm"].library(BF16),
    modulation.CUDA["scale_shift"].library(BF16, BF16),
)
# This one is among the loaded libraries.
SUMS = tuple(own for own in residual_norm.SUMS_OF_TWO if own.name != "kernel.cu")
COMPILED = (
    norm_modulation.EXACT["norm_scale_shift"].library(FP32),
    norm_modulation.CUDA["norm_scale_shift_select"].library(FP32),
    norm_tanh.CUDA["norm_tanh_mul_add_norm_scale"].library(BF16), ernie.CUDA["ernie_norm_modulate"].library(FP32),
    ltx2_modulate.CUDA["rms_modulate"].library(FP32),
    Library("general_sums", residual_norm.GENERAL_SUMS, residual_norm.CUDA["add_norm"].library(FP32).macros),
    Library("sums", SUMS, residual_norm.CUDA["add_norm"].library(BF16).macros),  # float32 has none
)  # fmt: skip


def built(own: Library) -> Path:
    if own in LOADED:
        return shared_with_slow_host(own, Target("sm_90"))
    return shared_compilation(own, "sm_90", "cubin", "-w", *CUDA_FLAGS)


@pytest.mark.parametrize("library", LOADED + COMPILED, ids=lambda own: own.name)
def test_no_kernel_touches_memory_ahead_of_its_turn(library: Library) -> None:
    kernels = kernels_in(built(library))
    assert kernels
    for name, kernel in kernels.items():
        assert any(own.name == WAIT for own in kernel.values()), f"{name} does not wait"
        assert any(own.may_touch_global_memory for own in kernel.values()), f"{name} seems to do nothing"
        assert not ahead_of_turn(kernel), name


def test_every_file_of_kernels_is_checked() -> None:
    """Except for kernels with a plain launch, after which no kernel starts early."""
    files = Path(norm_modulation.__file__).parents[1].glob("*/*.cu")
    looked_at = {source for own in LOADED + COMPILED for source in own.sources}
    assert {own for own in files if "cudaLaunchKernel(" not in own.read_text()} <= looked_at


PLANTED = """
#define WAIT asm volatile("griddepcontrol.wait;" ::: "memory")
extern "C" __global__ void right(int* y, int n) { if (n < 9) return; WAIT; y[threadIdx.x] = *y + n; }
extern "C" __global__ void loads(int* y, int n) { const int early = *y; WAIT; y[threadIdx.x] = early + n; }
extern "C" __global__ void stores(int* y, int n) { if (n > 9) y[threadIdx.x] = n; WAIT; y[n] = n; }
extern "C" __global__ void hides(int* y, int n) { if (n > 9) { WAIT; y[n] = 2; } else { y[threadIdx.x] = 3; } }
extern "C" __global__ void never(int* y, int n) { y[threadIdx.x] = n; }
"""


def test_an_early_access_is_found(tmp_path: Path) -> None:
    source = tmp_path / "planted.cu"
    source.write_text(PLANTED)
    cubin = shared_compilation(Library("planted", (source,)), "sm_90", "cubin")
    found = {name: ahead_of_turn(kernel) for name, kernel in kernels_in(cubin).items()}
    assert found.pop("right") == []
    assert set(found) == {"loads", "stores", "hides", "never"}
    for name, early in found.items():
        assert len(early) == 1 and ("LDG" if name == "loads" else "STG") in early[0]
