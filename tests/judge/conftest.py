"""Fixtures for tests of the judge's own Triton kernels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from interpreter_server import run_interpreted


@pytest.fixture
def said_by() -> Callable[[str], str]:
    """Return what code with Triton kernels prints in a process of its own. Without a GPU the interpreter runs the
    kernels."""
    pytest.importorskip("triton")

    def run(code: str) -> str:
        if not torch.cuda.is_available():
            return run_interpreted(code).strip()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    return run
