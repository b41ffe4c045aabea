"""Implementations of layer_norm and rms_norm.

CUDA runs the kernels of norm_modulation, compiled without a modulation, and one of its own for RMS norms of narrow
rows. No kernel is exact: the order in which torch sums a row is not part of torch's interface. On a CPU torch's own
norms run.
"""

from __future__ import annotations

from kernwright.ops._shared.checks import check_tokens
from kernwright.ops._shared.implementations import ROW_HEADERS, CudaOp, sources, triton
from kernwright.ops._shared.token_requirements import rows_fit
from kernwright.ops.norm_modulation.family import KERNELS
from kernwright.ops.plain_norm import definition
from kernwright.runtime.call import Call
from kernwright.runtime.fused_op import FusedOp

SOURCES = (*sources(__file__, "host.cc", "kernel.cu", "policy.h"), *KERNELS, *ROW_HEADERS)
MACROS = (("KERNWRIGHT_RESIDUAL", "0"), ("KERNWRIGHT_MODULATED", "0"))


def check(call: Call) -> None:
    check_tokens(call, affine=("weight", "bias"))


# One library has both norms: a kernel chooses by a branch that all threads take alike.
CUDA = {op: CudaOp(op, SOURCES, MACROS, shared="plain_norm") for op in ("layer_norm", "rms_norm")}
OPS = {
    op.name: FusedOp(
        op=op,
        implementations=(CUDA[op.name].implementation(op, rows_fit), triton(__name__, op, rows_fit)),
        check=check,
    )
    for op in (definition.layer_norm, definition.rms_norm)
}
