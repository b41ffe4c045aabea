"""For tests of the judge's own Triton kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch


@pytest.fixture
def said_by() -> Callable[[str], str]:
    """What code with Triton kernels prints, in a process of its own: on a machine without a GPU the interpreter runs
    them, which Triton must know when it is imported."""
    pytest.importorskip("triton")
    environment = os.environ | ({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    return run
