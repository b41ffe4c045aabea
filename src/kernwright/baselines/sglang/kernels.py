"""Adapters of all diffusion kernels of sglang 0.5.23, through the functions that its models call.

The layers of sglang decide by rules whether they call a kernel. The objections here repeat these rules: where a layer
would not call the kernel, the row is declined.
"""

from __future__ import annotations

from kernwright.baselines.adapter import Table
from kernwright.baselines.sglang import modulations, norms, padding, rotary, tanh_norms

TABLE = Table(
    adapters=norms.TABLE.adapters
    | modulations.TABLE.adapters
    | padding.TABLE.adapters
    | rotary.TABLE.adapters
    | tanh_norms.TABLE.adapters,
    absent={
        "ernie_residual_gate": "sglang 0.5.23 runs the compiled expression",
        "broadcast_add": "sglang 0.5.23 runs the eager addition",
        "concat_sequence": "sglang 0.5.23 runs torch.cat",
        "copy_contiguous": "sglang 0.5.23 runs torch's contiguous()",
        "rms_modulate": "sglang 0.5.23 runs the eager chain under autocast; its fused kernel gives bf16, not float32",
        "rms_modulate_from_table": "sglang 0.5.23 runs the eager chain",
        "dual_modulate": "sglang 0.5.23 runs the eager chain",
        "dual_modulate_from_table": "sglang 0.5.23 runs the eager chain",
    },
)
