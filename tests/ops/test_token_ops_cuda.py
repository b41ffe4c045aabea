"""The CUDA kernels of the ops over tokens compile for a GPU that is not here; the emulated tests run them."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from kernwright.ops.norm_modulation import select_native
from kernwright.runtime import library
from kernwright.runtime.library import Target, nvcc


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
def test_they_compile_for_the_oldest(tmp_path: Path) -> None:
    """The one of which most is asked, for the GPU that can least; not optimised, which a build would wait for."""
    own = select_native.CUDA["residual_norm_scale_shift_select"].library(torch.bfloat16)
    with patch.object(library, "CUDA_FLAGS", ("-Xptxas=-O0", "-Xcicc=-O1")):
        assert own.build(Target("sm_75"), tmp_path).exists()
