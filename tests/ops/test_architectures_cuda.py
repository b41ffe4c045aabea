"""The CUDA kernels compile for older and newer GPUs than sm_90, for which `test_turns_cuda.py` compiles them.

With their host code they are libraries that can be loaded.
"""

from __future__ import annotations

import kernel_checks
import pytest
from kernel_checks import ARCHITECTURES, LINKS, Check

from kernwright.runtime.target import nvcc


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
@pytest.mark.parametrize("check", ARCHITECTURES, ids=lambda check: check.name)
def test_kernels_compile(check: Check) -> None:
    kernel_checks.hold(check)


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
@pytest.mark.parametrize("check", LINKS, ids=lambda check: check.name)
def test_libraries_define_all_that_they_call(check: Check) -> None:
    kernel_checks.hold(check)
