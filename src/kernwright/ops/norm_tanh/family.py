"""Implementations of norm_tanh_mul_add and norm_tanh_mul_add_norm_scale.

No implementation is exact: the order in which torch sums a token, and torch's tanh, are not part of its interface.
"""

from __future__ import annotations

from functools import partial

from kernwright.ops._shared.checks import check_bias, check_norm_type, check_tokens
from kernwright.ops._shared.implementations import TOKEN_HEADERS, CudaOp, sources, triton
from kernwright.ops._shared.token_requirements import MOST_AXES, tokens_fit
from kernwright.ops.norm_tanh import definition
from kernwright.runtime.call import Call
from kernwright.runtime.fused_op import FusedOp

MODULATIONS = ("scale", "shift", "scale2")
SOURCES = (*sources(__file__, "host.cc", "kernel.cu", "policy.h"), *TOKEN_HEADERS)
gated_tokens_fit = partial(tokens_fit, modulations=MODULATIONS, most_axes=MOST_AXES)


def check(call: Call) -> None:
    check_tokens(call, MODULATIONS, ("weight", "bias", "weight2", "bias2"))
    is_rms = check_norm_type(call)
    check_bias(call, is_rms)
    check_bias(call, is_rms, "bias2", "weight2")


CUDA = {
    op.name: CudaOp(op.name, SOURCES, (("KERNWRIGHT_TWICE", twice),))
    for op, twice in ((definition.norm_tanh_mul_add, "0"), (definition.norm_tanh_mul_add_norm_scale, "1"))
}
OPS = {
    op.name: FusedOp(
        op=op,
        implementations=(CUDA[op.name].implementation(op, gated_tokens_fit), triton(__name__, op, gated_tokens_fit)),
        check=check,
    )
    for op in (definition.norm_tanh_mul_add, definition.norm_tanh_mul_add_norm_scale)
}
