"""Kernels that are launched ahead of their turn (`launching.cuh`) wait for it before they access memory. This is
checked in machine code, because an assembler may move loads ahead of the wait."""

from __future__ import annotations

from pathlib import Path

import kernel_checks
import pytest
from builds import shared_compilation
from kernel_checks import SUMS, TURNS, Check
from machine_code import ahead_of_turn, cuobjdump, kernels_in, waits_for_its_turn

from kernwright.ops.norm_modulation import family as norm_modulation
from kernwright.runtime.library import CUDA_FLAGS, Library
from kernwright.runtime.target import nvcc

needs_tools = pytest.mark.skipif(nvcc() is None or cuobjdump() is None, reason="there is no nvcc or no cuobjdump")


@needs_tools
@pytest.mark.parametrize("check", TURNS, ids=lambda check: check.library.name)
def test_no_kernel_touches_memory_ahead_of_its_turn(check: Check) -> None:
    kernel_checks.hold(check)


@needs_tools
def test_a_kernel_that_is_always_compiled_waits_for_its_turn() -> None:
    """The other kernels are compiled after a change. This one compiles fastest."""
    waits_for_its_turn(shared_compilation(SUMS, "sm_90", "cubin", "-w", *CUDA_FLAGS))


def test_every_file_of_kernels_is_checked() -> None:
    """Except for kernels with a plain launch, after which no kernel starts early."""
    files = Path(norm_modulation.__file__).parents[1].glob("*/*.cu")
    looked_at = {source for own in TURNS for source in own.library.sources}
    assert {own for own in files if "cudaLaunchKernel(" not in own.read_text()} <= looked_at


PLANTED = """
#define WAIT asm volatile("griddepcontrol.wait;" ::: "memory")
extern "C" __global__ void right(int* y, int n) { if (n < 9) return; WAIT; y[threadIdx.x] = *y + n; }
extern "C" __global__ void loads(int* y, int n) { const int early = *y; WAIT; y[threadIdx.x] = early + n; }
extern "C" __global__ void stores(int* y, int n) { if (n > 9) y[threadIdx.x] = n; WAIT; y[n] = n; }
extern "C" __global__ void hides(int* y, int n) { if (n > 9) { WAIT; y[n] = 2; } else { y[threadIdx.x] = 3; } }
extern "C" __global__ void never(int* y, int n) { y[threadIdx.x] = n; }
"""


@needs_tools
def test_an_early_access_is_found(tmp_path: Path) -> None:
    source = tmp_path / "planted.cu"
    source.write_text(PLANTED)
    cubin = shared_compilation(Library("planted", (source,)), "sm_90", "cubin")
    found = {name: ahead_of_turn(kernel) for name, kernel in kernels_in(cubin).items()}
    assert found.pop("right") == []
    assert set(found) == {"loads", "stores", "hides", "never"}
    for name, early in found.items():
        assert len(early) == 1 and ("LDG" if name == "loads" else "STG") in early[0]
    with pytest.raises(AssertionError):
        waits_for_its_turn(cubin)
