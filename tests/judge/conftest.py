"""Fixtures for tests of the judge's own Triton kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch


@pytest.fixture
def said_by() -> Callable[[str], str]:
    """Return what code with Triton kernels prints in a process of its own. Without a GPU the interpreter runs the
    kernels, and Triton must know this at import."""
    pytest.importorskip("triton")
    environment = os.environ | ({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    return run
