"""The first call of an op does not import torch's compiler, which takes seconds."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Ops with a CPU kernel. All others run their reference here, which allocates its own outputs.
CALLS = {
    "norm_scale_shift": "ops.norm_scale_shift(x, row, row)",
    "residual_norm_scale_shift": "ops.residual_norm_scale_shift(x, x, row, row)",
}


@pytest.mark.parametrize("op", CALLS)
def test_a_first_call_imports_no_compiler(op: str) -> None:
    program = (
        "import sys, torch\nfrom kernwright import ops\n"
        "x, row = torch.randn(1, 4, 64), torch.randn(1, 64)\n"
        f"{CALLS[op]}\n"
        "sys.exit(' '.join(name for name in ('torch._dynamo', 'torch._inductor') if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
