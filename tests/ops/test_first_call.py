"""The first call of an op does not import torch's compiler, which takes seconds."""

from __future__ import annotations

import subprocess
import sys

# Calls of the ops with a CPU kernel. All others run their reference here, which allocates its own outputs.
PROGRAM = """
import sys, torch
from kernwright import ops
x, row = torch.randn(1, 4, 64), torch.randn(1, 64)
for call in (lambda: ops.norm_scale_shift(x, row, row), lambda: ops.residual_norm_scale_shift(x, x, row, row)):
    call()
    if imported := [name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules]:
        sys.exit(f"{call} imported {imported}")
"""


def test_first_calls_import_no_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
